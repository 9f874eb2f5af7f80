"""When the engine's log-probabilities are too far from training's."""

from __future__ import annotations

import math

import pytest
import torch

from grpo.core.train.sampling.guard import OUTLIER, Mismatch, difference_sums


def sums(difference: float, tokens: int = 10) -> torch.Tensor:
    train = torch.zeros(2, tokens)
    mask = torch.ones_like(train)
    mask[1] = 0
    return difference_sums(train, torch.full_like(train, difference), mask)


def test_only_tokens_that_count_are_compared() -> None:
    train, sampled = torch.zeros(1, 3), torch.tensor([[0.5, -1.5, 99.0]])
    assert difference_sums(train, sampled, torch.tensor([[1, 1, 0]])).tolist() == [[2.0, 2.0, 1.5]]


def test_the_mean_is_over_all_micro_batches_of_the_step() -> None:
    found = Mismatch(0.1)
    found.add(sums(0.15, tokens=10))
    assert found.too_far
    found.add(sums(0.01, tokens=30))
    assert found.mean == pytest.approx(0.045)
    assert not found.too_far
    found.clear()
    assert found.mean == 0.0
    assert not found.too_far


def test_one_token_far_off_is_enough() -> None:
    found = Mismatch(1e-3)
    train = torch.zeros(1, 10_000)
    sampled = train.clone()
    sampled[0, 7] = 1.1 * OUTLIER * 1e-3
    found.add(difference_sums(train, sampled, torch.ones_like(train)))
    assert found.mean < 1e-3
    assert found.too_far


def test_what_is_not_a_number_is_too_far_and_stays_so() -> None:
    found = Mismatch(0.1)
    found.add(sums(math.nan))
    found.add(sums(0.0))
    assert found.too_far


def test_an_empty_batch_differs_by_nothing() -> None:
    assert difference_sums(torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1, 2)).tolist() == [[0.0, 0.0, 0.0]]
