"""Tokens are chosen as the parameters say, and their log-probabilities are those before any filter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo.core.rollout.draws import keys_of, uniforms
from grpo.core.rollout.hf import sampler
from grpo.core.rollout.types import SamplingParams

LOGITS = torch.tensor([2.0, 1.0, 0.5, -1.0])  # probabilities 0.59, 0.22, 0.13, 0.03


def params(**changed: Any) -> SamplingParams:
    return SamplingParams(max_tokens=1, eos_ids=(0,), pad_id=0, **changed)


def choose(rows: torch.Tensor, how: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    return sampler.choose(rows, how, uniforms(None, len(rows), 1)[:, 0])


def drawn(count: int = 4000, **changed: Any) -> torch.Tensor:
    """The share of each token among many choices."""
    torch.manual_seed(0)
    chosen, _ = choose(LOGITS.expand(count, -1), params(**changed))
    return torch.bincount(chosen, minlength=len(LOGITS)) / count


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_as_frequent_as_they_are_probable(temperature: float) -> None:
    assert drawn(temperature=temperature).tolist() == pytest.approx(
        (LOGITS / temperature).softmax(-1).tolist(), abs=0.03
    )


def test_temperature_zero_takes_the_most_probable_token_with_its_plain_log_probability() -> None:
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    chosen, logprobs = choose(rows, params(temperature=0.0))
    assert chosen.tolist() == [0, 3]
    assert logprobs.tolist() == pytest.approx([float(LOGITS.log_softmax(-1)[0])] * 2)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ({"top_k": 1}, [0]),
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 99}, [0, 1, 2, 3]),
        ({"top_p": 0.5}, [0]),
        ({"top_p": 0.7}, [0, 1]),
        ({"min_p": 0.3}, [0, 1]),
        ({"top_k": 3, "min_p": 0.3}, [0, 1]),
    ],
    ids=str,
)
def test_a_filter_leaves_these_tokens_in_their_old_proportions(filters: dict[str, Any], left: list[int]) -> None:
    kept = LOGITS.softmax(-1)[left]
    expected = torch.zeros(len(LOGITS)).scatter(0, torch.tensor(left), kept / kept.sum())
    assert drawn(**filters).tolist() == pytest.approx(expected.tolist(), abs=0.03)


def test_log_probabilities_are_those_before_the_filters_because_training_computes_them_without() -> None:
    chosen, logprobs = choose(LOGITS.expand(50, -1), params(top_k=2, temperature=0.5))
    assert torch.equal(logprobs, (LOGITS / 0.5).log_softmax(-1)[chosen])


def test_logits_of_16_bits_are_reckoned_in_32() -> None:
    chosen, logprobs = choose(LOGITS.bfloat16()[None], params(temperature=0.7))
    assert logprobs.dtype == torch.float32
    assert torch.equal(logprobs, (LOGITS.bfloat16().float() / 0.7).log_softmax(-1)[chosen])


def test_the_choice_of_a_row_is_that_of_torchs_generator() -> None:
    rows = torch.randn(64, 16)
    torch.manual_seed(3)
    first, _ = choose(rows, params())
    torch.manual_seed(3)
    assert torch.equal(first, choose(rows, params())[0])
    assert not torch.equal(first, choose(rows, params())[0])


@pytest.mark.parametrize("width", [4, 256, 300, 1000])
def test_a_number_chooses_the_token_where_the_sum_of_probabilities_passes_it(width: int) -> None:
    torch.manual_seed(1)
    rows = 3 * torch.randn(200, width)
    rows[:, 2] = -torch.inf  # it is never chosen
    numbers = torch.rand(200, dtype=torch.float64)
    numbers[:3] = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    chosen, _ = sampler.choose(rows, params(), numbers)
    sums = rows.double().softmax(-1).cumsum(-1)
    at = sums.gather(1, chosen[:, None])[:, 0]
    assert (at >= numbers - 1e-6).all()
    assert (at - rows.double().softmax(-1).gather(1, chosen[:, None])[:, 0] <= numbers + 1e-6).all()
    assert not (chosen == 2).any()


def test_a_completion_has_numbers_of_its_own_wherever_it_is_sampled() -> None:
    whole = uniforms(keys_of(7, 3, range(8)), 8, 5)
    halves = [uniforms(keys_of(7, 3, range(first, first + 4)), 4, 5) for first in (0, 4)]
    assert torch.equal(whole, torch.cat(halves))
    others = [uniforms(keys_of(seed, step, range(8)), 8, 5) for seed, step in ((7, 4), (8, 3))]
    assert len({number for numbers in (whole, *others) for number in numbers.flatten().tolist()}) == 3 * 40
    assert 0.0 <= float(whole.min()) < float(whole.max()) < 1.0
