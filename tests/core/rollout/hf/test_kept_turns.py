"""Keys and values between turns: what is gone on from is what a plain forward pass computes, and less work."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.policy.load import load_model
from grpo.core.rollout.hf.kept_turns import KeptTurns
from grpo.core.rollout.hf.sampler import HfRollouts, sample
from grpo.core.rollout.types import Sampled, SamplingParams

ENDS = tuple(range(2, 60))  # so many that rows end at different steps, and the batch shrinks
PARAMS = SamplingParams(max_tokens=12, eos_ids=ENDS, pad_id=0)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    return load_model(str(tiny_model), "float32")


def prompts_of(count: int) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(60, 400) for _ in range(draw.randrange(3, 40))] for _ in range(count) for _ in range(2)]


def grown(prompts: Sequence[Sequence[int]], done: Sequence[Sampled], seed: int) -> list[list[int]]:
    """Returns the contexts of the next turn, of some of the rows, in another order."""
    draw = random.Random(seed)
    rows = [
        [*prompt, *one.token_ids, *(draw.randrange(60, 400) for _ in range(draw.randrange(1, 9)))]
        for prompt, one in zip(prompts, done, strict=True)
    ]
    return draw.sample(rows, len(rows) - 2)


def largest_gap(model: Any, prompts: Sequence[Sequence[int]], done: Sequence[Sampled]) -> float:
    gaps: list[float] = []
    for prompt, one in zip(prompts, done, strict=True):
        ids = torch.tensor([[*prompt, *one.token_ids]])
        with torch.no_grad():
            logps = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        plain = logps.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        gaps.append((plain - torch.tensor(one.logprobs)).abs().max().item())
    return max(gaps)


def widths(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Notes the shapes of the inputs of every forward pass."""
    seen: list[tuple[int, int]] = []
    forward = model.forward

    def noted(**given: Any) -> Any:
        seen.append(tuple(given["input_ids"].shape))
        return forward(**given)

    monkeypatch.setattr(model, "forward", noted)
    return seen


def test_every_turn_has_the_log_probabilities_of_a_plain_forward_pass(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    kept, prompts = KeptTurns(), prompts_of(8)
    for turn in range(4):
        with monkeypatch.context() as patch:
            seen = widths(model, patch)
            done = sample(model, prompts, PARAMS, kept=kept)
        first = max(columns for _, columns in seen)
        if turn:
            assert first <= 8 + 1, "only what came after the last sampled token but one"
            assert seen[0][0] == len(prompts)
        assert len({len(one.token_ids) for one in done}) > 3
        assert min(rows for rows, _ in seen) < len(prompts), "the batch shrank"
        assert largest_gap(model, prompts, done) < 2e-5
        prompts = grown(prompts, done, turn)


def test_tokens_are_those_without_keeping(model: Any) -> None:
    greedy = SamplingParams(max_tokens=10, eos_ids=ENDS, pad_id=0, temperature=0.0)
    kept, prompts = KeptTurns(), prompts_of(6)
    for turn in range(3):
        done = sample(model, prompts, greedy, kept=kept)
        plain = sample(model, prompts, greedy)
        assert [one.token_ids for one in done] == [one.token_ids for one in plain]
        prompts = grown(prompts, done, turn)


@pytest.mark.parametrize("long", [3, 90])
def test_contexts_that_are_not_known_are_computed_beside_the_others(
    model: Any, monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    torch.manual_seed(0)
    kept, prompts = KeptTurns(), prompts_of(4)
    done = sample(model, prompts, PARAMS, kept=kept)
    for turn in range(3):
        first, second, third, *_ = grown(prompts, done, turn)
        new = [[399 - turn] * long, [380 - turn, 379]]
        prompts = [new[0], first, second, new[1], new[1], third]
        with monkeypatch.context() as patch:
            seen = widths(model, patch)
            done = sample(model, prompts, PARAMS, kept=kept)
        (rows, columns), others = seen[0], seen[1]
        assert (rows, others) == (3, (2, long)), "equal neighbours are one row"
        assert columns <= 8 + 1
        assert largest_gap(model, prompts, done) < 2e-5


def test_a_sliding_window_is_not_kept(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM, MistralConfig

    config = MistralConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        kept, prompts = KeptTurns(), prompts_of(3)
        done = sample(model, prompts, PARAMS, kept=kept)
        prompts = grown(prompts, done, 0)
        done = sample(model, prompts, PARAMS, kept=kept)
    assert kept.start(model, prompts, 0, lambda new: pytest.fail("nothing was kept")) is None
    assert largest_gap(model.eval(), prompts, done) < 2e-5


def test_rollouts_keep_unless_memory_is_to_be_saved(model: Any) -> None:
    for size, keeps in ((None, True), (4, False)):
        rollouts = HfRollouts(size)
        rollouts.sync(model)
        assert (rollouts.turns() != rollouts.generate) is keeps
