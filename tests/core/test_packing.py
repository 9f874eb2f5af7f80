"""Packed rows give the log-probabilities, entropies and gradients of the rows they were packed from."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo.core.forward import completion_logps
from grpo.core.head import attach_logps
from grpo.core.packing import can_pack, pack

PROMPT, COMPLETION, HIDDEN, VOCABULARY = 30, 20, 64, 97


def small_model(family: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        head_dim=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=96,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config)
    attach_logps(model, 1.0)
    return model


def ragged_batch(groups: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[groups * size, PROMPT + COMPLETION] ids and mask in a mixed order, one completion empty, one full."""
    generator = torch.Generator().manual_seed(2)

    def tokens(count: int) -> torch.Tensor:
        return torch.randint(3, VOCABULARY, (count,), generator=generator)

    ids = torch.zeros(groups * size, PROMPT + COMPLETION, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for group in range(groups):
        prompt = tokens(1 if group == 0 else 5 + 8 * group)
        for member in range(size):
            row = group * size + member
            length = {0: COMPLETION, 1: 0}.get(row, 1 + 3 * row % COMPLETION)
            ids[row, PROMPT - len(prompt) : PROMPT] = prompt
            ids[row, PROMPT : PROMPT + length] = tokens(length)
            mask[row, PROMPT - len(prompt) : PROMPT + length] = 1
    order = torch.randperm(len(ids), generator=generator)
    return ids[order], mask[order]


def forward(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, *, pack_for: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    logps, entropy = completion_logps(model, ids, mask, COMPLETION, pack_for=pack_for, entropy=True)
    assert entropy is not None
    return logps, entropy


@pytest.mark.parametrize("family", ["qwen2", "llama", "qwen3"])
def test_packed_rows_equal_plain_rows_and_so_do_their_gradients(family: str) -> None:
    model = small_model(family)
    assert can_pack(model.config)
    ids, mask = ragged_batch(groups=3, size=4)
    rows = pack(ids, mask, COMPLETION, HIDDEN)
    assert rows is not None
    assert rows.input_ids.numel() < ids.numel()
    present = mask[:, -COMPLETION:].bool()
    weight = torch.randn(present.shape, generator=torch.Generator().manual_seed(3)) * present
    results, gradients = [], []
    for pack_for in (None, HIDDEN):
        model.zero_grad()
        logps, entropies = forward(model, ids, mask, pack_for=pack_for)
        (logps * weight).sum().backward()
        results.append((logps.detach(), entropies.detach()))
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one[present], other[present], rtol=0, atol=3e-5)
        assert not other[~present].any()
    for name, gradient in gradients[0].items():
        error = (gradient - gradients[1][name]).norm() / gradient.norm().clamp(min=1e-6)
        assert error < 1e-4, f"{name}: {error}"


def test_prompts_that_nobody_shares_are_not_packed() -> None:
    ids, mask = ragged_batch(groups=3, size=1)
    assert pack(ids, mask, COMPLETION, HIDDEN) is None


def test_long_completions_of_a_short_prompt_are_not_packed() -> None:
    """Sharing two prompt tokens saves less than the wider attention mask costs."""
    ids = torch.randint(3, VOCABULARY, (8, 2 + 4000))
    ids[:, :2] = 5
    assert pack(ids, torch.ones_like(ids), 4000, HIDDEN) is None


def test_models_that_do_not_attend_fully_are_left_alone() -> None:
    from transformers import AutoConfig

    sliding = AutoConfig.for_model("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=0)
    sliding._attn_implementation = "sdpa"
    assert not can_pack(sliding)
    unknown = AutoConfig.for_model("gpt2")
    unknown._attn_implementation = "sdpa"
    assert not can_pack(unknown)
    flash = AutoConfig.for_model("qwen2")
    flash._attn_implementation = "flash_attention_2"
    assert not can_pack(flash)
