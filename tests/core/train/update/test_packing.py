"""Packed rows give the log-probabilities, entropies and gradients of the rows they were packed from."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo.core.policy.blocks import can_pack
from grpo.core.train.update.forward import completion_logps
from grpo.core.train.update.head import attach_logps
from grpo.core.train.update.packing import CALL, Packed, pack
from grpo.plugins.errors import UsageError

PROMPT, COMPLETION, HIDDEN, VOCABULARY = 30, 20, 64, 97


def small_model(family: str, attention: str = "sdpa", *, lora: bool = False) -> Any:
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
        tie_word_embeddings=not lora,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    attach_logps(model, 1.0)
    if not lora:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=3, target_modules=["q_proj", "lm_head"], init_lora_weights=False))


def ragged_batch(groups: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[groups * size, PROMPT + COMPLETION] ids and mask in a mixed order, one completion empty, one full."""
    generator = torch.Generator().manual_seed(2)

    def tokens(count: int) -> torch.Tensor:
        return torch.randint(3, VOCABULARY, (count,), generator=generator)

    ids = torch.zeros(groups * size, PROMPT + COMPLETION, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for group in range(groups):
        prompt = tokens(1 if group == 0 else 5 + 6 * group)
        for member in range(size):
            row = group * size + member
            length = {0: COMPLETION, 1: 0}.get(row, 1 + 3 * row % COMPLETION)
            ids[row, PROMPT - len(prompt) : PROMPT] = prompt
            ids[row, PROMPT : PROMPT + length] = tokens(length)
            mask[row, PROMPT - len(prompt) : PROMPT + length] = 1
    order = torch.randperm(len(ids), generator=generator)
    return ids[order], mask[order]


def trees(rollouts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[5 * rollouts, PROMPT + COMPLETION] ids and mask of agents' rollouts of one task.

    The rows of each: its chain; a turn that rewrote an observation; one that went on from there; a sub-agent that has
    the system message of the task; and a chain that begins anew, whose first token alone is that of the others.
    """
    generator = torch.Generator().manual_seed(5)

    def tokens(count: int) -> list[int]:
        return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()

    rows: list[tuple[list[int], list[int]]] = []
    system, task = tokens(6), tokens(4)
    for _ in range(rollouts):
        root = system + task
        chain = root, tokens(14)
        rewritten = root + chain[1][:7], tokens(5)
        deeper = rewritten[0] + rewritten[1] + tokens(2), tokens(9)
        rows += [
            chain,
            rewritten,
            deeper,
            (system + tokens(3), tokens(1)),
            (system[:1] + tokens(4), tokens(COMPLETION)),
        ]
    ids = torch.zeros(len(rows), PROMPT + COMPLETION, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(rows):
        ids[row, PROMPT - len(prompt) : PROMPT + len(completion)] = torch.tensor(prompt + completion)
        mask[row, PROMPT - len(prompt) : PROMPT + len(completion)] = 1
    return ids, mask


def by_the_models_own_mask(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The padded batch as it is, without any of our layouts."""
    labels = torch.full_like(ids, -100)
    labels[:, PROMPT - 1 : -1] = ids[:, PROMPT:].masked_fill(mask[:, PROMPT:] == 0, -100)
    found = model(input_ids=ids, attention_mask=mask, logp_labels=labels, logp_entropy="value")
    where = slice(PROMPT - 1, -1)
    return found["logps"][:, where], found["entropy"][:, where]


def assert_equal(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, *, pack_for: int | None, trees: bool = False
) -> None:
    """Compares log-probabilities, entropies and the gradient of every parameter with those of the padded batch."""
    present = mask[:, -COMPLETION:].bool()
    weight = torch.randn(present.shape, generator=torch.Generator().manual_seed(3)) * present
    results, gradients = [], []
    for own in (False, True):
        model.zero_grad()
        if own:
            logps, entropies, *_ = completion_logps(
                model, ids, mask, COMPLETION, pack_for=pack_for, entropy="value", trees=trees
            )
        else:
            logps, entropies = by_the_models_own_mask(model, ids, mask)
        assert entropies is not None
        (logps * weight).sum().backward()
        results.append((logps.detach(), entropies.detach()))
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one[present], other[present], rtol=0, atol=3e-5)
        assert not other[~present].any()
    assert gradients[0]
    for name, gradient in gradients[0].items():
        error = (gradient - gradients[1][name]).norm() / gradient.norm().clamp(min=1e-6)
        assert error < 1e-4, f"{name}: {error}"


def laid_out(ids: torch.Tensor, mask: torch.Tensor, hidden: int | None = HIDDEN) -> Packed:
    rows = pack(ids, mask, COMPLETION, hidden, torch.float32)
    assert rows is not None
    return rows


@pytest.fixture(params=[0, 20_000, 60_000])
def call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """What a call of attention costs besides: nothing, and each length has its own; much, and few are left."""
    monkeypatch.setitem(CALL, "cpu", request.param)
    return int(request.param)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("family", ["qwen2", "llama", "qwen3"])
def test_packed_rows_equal_padded_rows_and_so_do_their_gradients(family: str, lora: bool, call: int) -> None:
    model = small_model(family, lora=lora)
    ids, mask = ragged_batch(groups=3, size=4)
    rows = laid_out(ids, mask)
    assert rows.blocks is not None
    shared = [part for part in rows.blocks.parts if part.mask is not None]
    assert shared
    assert max(part.number for part in shared) == (1 if call == 0 else 2 if call == 20_000 else 3)
    assert rows.padding == 0
    assert rows.input_ids.numel() < int(mask.sum())
    plain = laid_out(ids, mask, hidden=None)
    assert plain.padding == plain.input_ids.numel() - int(mask.sum())
    assert_equal(model, ids, mask, pack_for=HIDDEN)


@pytest.mark.parametrize("lora", [False, True])
def test_rows_of_trees_equal_padded_rows_and_what_they_have_in_common_is_computed_once(lora: bool, call: int) -> None:
    ids, mask = trees(rollouts=3)
    rows = pack(ids, mask, COMPLETION, HIDDEN, torch.float32, trees=True)
    assert rows is not None
    assert rows.blocks is not None
    assert rows.padding == 0
    if call == 0:
        once = 10 + 3 * (14 + 5 + 2 + 9 + 3 + 1 + 5 + COMPLETION)  # each token that no row before has at its place
        again = 3 * 4 - 1 + 2  # and the one at which a row leaves another
        assert rows.input_ids.numel() <= once + again < laid_out(ids, mask).input_ids.numel()
        assert max(part.after for part in rows.blocks.parts) > 20, "not below a row that is below another"
    assert_equal(small_model("qwen3", lora=lora), ids, mask, pack_for=HIDDEN, trees=True)


@pytest.mark.parametrize("call", [0], indirect=True)
def test_a_prompt_that_is_all_that_a_row_before_holds_begins_with_its_last_token(call: int) -> None:
    tokens = torch.arange(3, 3 + 26)
    ids, mask = torch.zeros(2, 2, PROMPT + COMPLETION, dtype=torch.long)
    for row, split in enumerate((10, 18)):
        ids[row, PROMPT - split : PROMPT - split + 26] = tokens
        mask[row, PROMPT - split : PROMPT - split + 26] = 1
    ids[0, PROMPT + 8 : PROMPT + 16] = 0  # all that the first row holds is the prompt of the second
    mask[0, PROMPT + 8 : PROMPT + 16] = 0
    rows = pack(ids, mask, COMPLETION, HIDDEN, torch.float32, trees=True)
    assert rows is not None
    assert rows.blocks is not None
    assert rows.input_ids.tolist() == [[*range(3, 21), 20, *range(21, 29)]]
    assert [part.after for part in rows.blocks.parts] == [0, 17]
    assert_equal(small_model("llama"), ids, mask, pack_for=HIDDEN, trees=True)


@pytest.mark.usefixtures("call")
def test_prompts_that_nobody_shares_stand_in_one_row_without_padding() -> None:
    ids, mask = ragged_batch(groups=5, size=1)
    rows = laid_out(ids, mask)
    assert rows.blocks is not None
    assert rows.input_ids.shape == (1, int(mask.sum()))
    assert_equal(small_model("qwen2"), ids, mask, pack_for=HIDDEN)


@pytest.mark.usefixtures("call")
def test_a_layer_that_is_computed_again_attends_as_it_did() -> None:
    """Checkpointing comes back to it in the backward pass, long after the call that said what sees what."""
    ids, mask = ragged_batch(groups=3, size=4)
    model = small_model("llama")
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert_equal(model, ids, mask, pack_for=HIDDEN)


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_plain_rows_need_no_mask(family: str) -> None:
    ids, mask = ragged_batch(groups=3, size=2)
    rows = laid_out(ids, mask, hidden=None)
    assert rows.blocks is None
    assert rows.input_ids.shape == (6, int(mask.sum(dim=1).max()))
    assert_equal(small_model(family), ids, mask, pack_for=None)


@pytest.mark.parametrize("hidden", [None, HIDDEN])
def test_coefficients_reach_the_output_layer_in_its_order(hidden: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = ragged_batch(groups=3, size=4)
    wanted = torch.randn(12, COMPLETION, generator=torch.Generator().manual_seed(4)) * mask[:, PROMPT:]
    model = small_model("qwen2")
    asked: list[torch.Tensor] = []

    def coefficients(logps: torch.Tensor) -> torch.Tensor:
        asked.append(logps)
        return wanted

    gradients = []
    for known in (None, coefficients):
        model.zero_grad()
        logps, *_ = completion_logps(model, ids, mask, COMPLETION, pack_for=hidden, entropy="none", coefficients=known)
        monkeypatch.setattr("grpo.kernels.fused.gradients", None)  # nothing may be computed anew
        (logps * wanted).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(asked[0], logps.detach())
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_completion_with_a_gap_is_left_as_it_is() -> None:
    ids, mask = ragged_batch(groups=2, size=3)
    full = int(mask[:, PROMPT:].sum(dim=1).argmax())
    mask[full, PROMPT + 2] = 0
    assert pack(ids, mask, COMPLETION, HIDDEN, torch.float32) is None
    assert_equal(small_model("qwen2"), ids, mask, pack_for=HIDDEN)


def test_long_completions_of_a_short_prompt_do_not_share_it() -> None:
    """Sharing two prompt tokens saves less than a mask costs that hides half of what attention computes."""
    ids = torch.randint(3, VOCABULARY, (8, 2 + 4000))
    ids[:, :2] = 5
    rows = pack(ids, torch.ones_like(ids), 4000, HIDDEN, torch.float32)
    assert rows is not None
    assert rows.blocks is None
    assert rows.input_ids.shape == ids.shape


def masks(rows: Packed) -> list[torch.Tensor]:
    assert rows.blocks is not None
    return [part.mask for part in rows.blocks.parts if part.mask is not None]


@pytest.mark.parametrize("call", [20_000], indirect=True)
def test_masks_are_never_larger_than_what_was_counted_for_them(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = ragged_batch(groups=3, size=4)
    made = {one.data_ptr(): one for one in masks(laid_out(ids, mask))}
    assert all(one.shape[-1] % 8 == 0 for one in made.values())
    monkeypatch.setattr("grpo.core.train.update.packing.MASK_SIZE", sum(one.numel() for one in made.values()) - 1)
    fewer = laid_out(ids, mask)
    assert masks(fewer) == []
    assert fewer.padding == 0


@pytest.mark.parametrize("call", [60_000], indirect=True)
def test_attention_keeps_one_mask_for_all_layers(call: int) -> None:
    """Given a mask of bools, it would make one of numbers in each layer and keep it for the backward pass."""
    model = small_model("qwen2")
    ids, mask = ragged_batch(groups=3, size=4)
    rows = laid_out(ids, mask)
    shapes = {one.shape for one in masks(rows)}
    kept: set[int] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape[-2:] in shapes and not tensor.requires_grad:
            kept.add(tensor.untyped_storage().data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        completion_logps(model, ids, mask, COMPLETION, pack_for=HIDDEN, entropy="none")
    assert len(kept) == len(shapes)


def test_models_that_do_not_attend_fully_are_left_alone() -> None:
    from transformers import AutoConfig

    sliding = AutoConfig.for_model("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=0)
    sliding._attn_implementation = "sdpa"
    assert not can_pack(sliding)
    unknown = AutoConfig.for_model("gpt2")
    unknown._attn_implementation = "sdpa"
    assert not can_pack(unknown)
    for name in ("flash_attention_2", "eager"):
        other = AutoConfig.for_model("qwen2")
        other._attn_implementation = name
        assert not can_pack(other)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_model_that_cannot_be_told_what_sees_what_is_refused(attention: str) -> None:
    ids, mask = ragged_batch(groups=3, size=4)
    model = small_model("qwen2", attention)
    model.set_attn_implementation(attention)  # a model that was attached with "sdpa" would take blocks
    with pytest.raises(UsageError, match=f"attends by '{attention}' cannot be told .* pack_for=None"):
        completion_logps(model, ids, mask, COMPLETION, pack_for=HIDDEN, entropy="none")
    assert_equal(model, ids, mask, pack_for=None)


@pytest.mark.parametrize("call", [20_000], indirect=True)
def test_half_precision_is_as_exact_packed_as_padded(call: int) -> None:
    ids, mask = ragged_batch(groups=3, size=4)
    present = mask[:, PROMPT:].bool()
    model = small_model("llama")
    with torch.no_grad():
        exact, _ = by_the_models_own_mask(model, ids, mask)
        with torch.autocast("cpu", torch.bfloat16):
            padded, _ = by_the_models_own_mask(model, ids, mask)
            packed = completion_logps(model, ids, mask, COMPLETION, pack_for=HIDDEN, entropy="none").logps
    lost = [(one - exact)[present].abs().mean() for one in (padded, packed)]
    assert lost[1] < 1.5 * lost[0]
