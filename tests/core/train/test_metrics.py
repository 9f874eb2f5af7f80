"""The metrics of an update are means per trained token, over however many processes took part."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from grpo.core.train.metrics import update_metrics, update_sums
from grpo.core.train.objective import LossValue
from grpo.core.train.report import StepReport

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
NONE = torch.zeros(2, 4, dtype=torch.bool)


def value(kl: torch.Tensor | None = None, low: torch.Tensor = NONE, high: torch.Tensor = NONE) -> LossValue:
    return LossValue(torch.zeros(()), kl, low, high)


def test_means_are_over_the_tokens_of_the_mask() -> None:
    entropy = torch.tensor([[1.0, 2.0, 3.0, 99.0], [6.0, 99.0, 99.0, 99.0]])
    low = torch.tensor([[True, False, False, True], [True, True, True, True]])
    sums = update_sums(value(entropy / 10, low), entropy, MASK, None)
    metrics = update_metrics(sums[None], kl=True, weighted=False)
    assert metrics["entropy"] == pytest.approx(3.0)
    assert metrics["kl"] == pytest.approx(0.3)
    assert metrics["clip_ratio/low_mean"] == pytest.approx(0.5)
    assert metrics["clip_ratio/high_mean"] == 0.0
    assert "sampling/importance_sampling_ratio/mean" not in metrics


def test_two_processes_with_rows_of_their_own_say_what_one_with_all_of_them_says() -> None:
    torch.manual_seed(0)
    entropy, kl, weights = torch.rand(2, 4), torch.rand(2, 4), torch.rand(2, 1)
    low, high = torch.rand(2, 4) > 0.5, torch.rand(2, 4) > 0.5
    whole = update_sums(value(kl, low, high), entropy, MASK, weights)[None]
    each = [update_sums(value(kl[r], low[r], high[r]), entropy[r], MASK[r], weights[r]) for r in ([0], [1])]
    assert update_metrics(torch.stack(each), kl=True, weighted=True) == pytest.approx(
        update_metrics(whole, kl=True, weighted=True)
    )


def test_a_clip_of_a_whole_completion_counts_for_each_of_its_tokens() -> None:
    metrics = update_metrics(
        update_sums(value(low=torch.tensor([[True], [False]])), None, MASK, None)[None], kl=False, weighted=False
    )
    assert metrics["clip_ratio/low_mean"] == metrics["clip_ratio/region_mean"] == pytest.approx(3 / 4)
    assert "kl" not in metrics


def test_a_token_that_both_clips_took_is_counted_once_in_the_region() -> None:
    every = MASK.bool()
    metrics = update_metrics(
        update_sums(value(low=every, high=every), None, MASK, None)[None], kl=False, weighted=False
    )
    assert [metrics[f"clip_ratio/{part}_mean"] for part in ("low", "high", "region")] == [1.0, 1.0, 1.0]


def test_a_micro_batch_that_only_fills_up_has_no_means_and_does_not_count_among_others() -> None:
    sums = update_sums(value(NONE.float()), NONE.float(), torch.zeros_like(MASK), torch.ones(2, 1))
    report = StepReport()
    report.add(update_metrics(sums[None], kl=True, weighted=True))
    assert set(report.take().values()) == {None}
    trained = update_sums(value(NONE.float()), NONE.float(), MASK, torch.ones(2, 1))
    for one in (sums, trained):
        report.add(update_metrics(one[None], kl=False, weighted=True))
    assert report.take()["sampling/importance_sampling_ratio/mean"] == 1.0


def test_sums_hold_no_gradient_and_are_in_32_bits() -> None:
    kl = torch.rand(2, 4, dtype=torch.bfloat16, requires_grad=True)
    sums = update_sums(value(kl), None, MASK, None)
    assert (sums.dtype, sums.requires_grad, sums.shape) == (torch.float32, False, (7,))


def test_what_a_loss_says_of_itself_is_a_mean_per_token_under_its_name() -> None:
    said = {"weight": torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2), "alike": torch.tensor([[5.0], [5.0]])}
    found = replace(value(), metrics=said)
    metrics = update_metrics(update_sums(found, None, MASK, None)[None], tuple(said), kl=False, weighted=False)
    assert metrics["loss/weight"] == pytest.approx(float((said["weight"] * MASK).sum() / MASK.sum()))
    assert metrics["loss/alike"] == 5.0
