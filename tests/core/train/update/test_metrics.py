"""The metrics of an update are means per trained token, over any micro batches and processes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from grpo.core.train.update.metrics import UpdateFigures, update_metrics, update_sums
from grpo.core.train.update.objective import LossValue
from grpo.plugins.errors import PluginError

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
NONE = torch.zeros(2, 4, dtype=torch.bool)


def alone(mine: torch.Tensor) -> torch.Tensor:
    return mine


def value(kl: torch.Tensor | None = None, low: torch.Tensor = NONE, high: torch.Tensor = NONE) -> LossValue:
    return LossValue(torch.zeros(()), kl, low, high)


def test_means_are_over_the_tokens_of_the_mask() -> None:
    entropy = torch.tensor([[1.0, 2.0, 3.0, 99.0], [6.0, 99.0, 99.0, 99.0]])
    low = torch.tensor([[True, False, False, True], [True, True, True, True]])
    sums = update_sums(value(entropy / 10, low), entropy, MASK, None)
    metrics = update_metrics(sums, kl=True, weighted=False)
    assert metrics["entropy"] == pytest.approx(3.0)
    assert metrics["kl"] == pytest.approx(0.3)
    assert metrics["clip_ratio/low_mean"] == pytest.approx(0.5)
    assert metrics["clip_ratio/high_mean"] == 0.0
    assert "sampling/importance_sampling_ratio/mean" not in metrics


def test_two_processes_with_rows_of_their_own_say_what_one_with_all_of_them_says() -> None:
    torch.manual_seed(0)
    entropy, kl, weights = torch.rand(2, 4), torch.rand(2, 4), torch.rand(2, 1)
    low, high = torch.rand(2, 4) > 0.5, torch.rand(2, 4) > 0.5
    whole = update_sums(value(kl, low, high), entropy, MASK, weights)
    each = [update_sums(value(kl[r], low[r], high[r]), entropy[r], MASK[r], weights[r]) for r in ([0], [1])]
    figures = UpdateFigures(kl=True, weighted=True)
    figures.add(each[0], (), 1, 4)
    found = figures.take(lambda mine: torch.stack([mine[0], torch.cat([mine.new_tensor([2.0, 4.0]), each[1]])]))
    assert found == pytest.approx({**update_metrics(whole, kl=True, weighted=True), "update/padding": 3 / 8})


def test_a_clip_of_a_whole_completion_counts_for_each_of_its_tokens() -> None:
    metrics = update_metrics(
        update_sums(value(low=torch.tensor([[True], [False]])), None, MASK, None), kl=False, weighted=False
    )
    assert metrics["clip_ratio/low_mean"] == metrics["clip_ratio/region_mean"] == pytest.approx(3 / 4)
    assert "kl" not in metrics


def test_a_token_that_both_clips_took_is_counted_once_in_the_region() -> None:
    every = MASK.bool()
    metrics = update_metrics(update_sums(value(low=every, high=every), None, MASK, None), kl=False, weighted=False)
    assert [metrics[f"clip_ratio/{part}_mean"] for part in ("low", "high", "region")] == [1.0, 1.0, 1.0]


def test_a_micro_batch_that_only_fills_up_has_no_means_and_does_not_count_among_others() -> None:
    sums = update_sums(value(NONE.float()), NONE.float(), torch.zeros_like(MASK), torch.ones(2, 1))
    figures = UpdateFigures(kl=False, weighted=True)
    figures.add(sums, (), 0, 8)
    assert math.isnan(figures.take(alone)["sampling/importance_sampling_ratio/mean"])
    trained = update_sums(value(NONE.float()), NONE.float(), MASK, torch.ones(2, 1))
    for one in (sums, trained):
        figures.add(one, (), 0, 8)
    assert figures.take(alone)["sampling/importance_sampling_ratio/mean"] == 1.0


@pytest.mark.parametrize("size", [1, 2, 3])
def test_figures_of_ragged_micro_batches_are_those_of_the_whole_step(size: int) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([1, 9, 2, 12, 5, 3])
    mask = (torch.arange(12) < lengths[:, None]).long()
    entropy, kl, weights, own = torch.rand(6, 12), torch.rand(6, 12), torch.rand(6, 12), torch.rand(6, 12)
    low = torch.rand(6, 12) > 0.5

    def dealt(size: int) -> dict[str, float]:
        figures = UpdateFigures(kl=True, weighted=True)
        for rows in torch.arange(6).split(size):
            said = replace(value(kl[rows], low[rows], ~low[rows]), metrics={"own": own[rows]})
            sums = update_sums(said, entropy[rows], mask[rows], weights[rows])
            figures.add(sums, ("own",), int((mask[rows] == 0).sum()), mask[rows].numel())
        return figures.take(alone)

    assert dealt(size) == pytest.approx(dealt(6))
    assert dealt(6)["entropy"] == pytest.approx(float(entropy[mask == 1].mean()))
    assert dealt(6)["loss/own"] == pytest.approx(float(own[mask == 1].mean()))
    assert dealt(6)["update/padding"] == pytest.approx(float((mask == 0).float().mean()))


def test_a_step_begins_without_the_sums_of_the_one_before() -> None:
    figures = UpdateFigures(kl=False, weighted=False)
    assert figures.take(alone) == {}
    for end in (figures.clear, lambda: figures.take(alone)):
        figures.add(update_sums(value(), torch.ones(2, 4), MASK, None), (), 0, 8)
        end()
        figures.add(update_sums(value(), 3 * torch.ones(2, 4), MASK, None), (), 0, 8)
        assert figures.take(alone)["entropy"] == 3.0


def test_a_loss_that_reports_other_metrics_in_another_micro_batch_is_refused() -> None:
    figures = UpdateFigures(kl=False, weighted=False)
    figures.add(update_sums(replace(value(), metrics={"mine": NONE}), None, MASK, None), ("mine",), 0, 8)
    with pytest.raises(PluginError, match="reports the metrics none of one micro batch and mine of another"):
        figures.add(update_sums(value(), None, MASK, None), (), 0, 8)


def test_sums_hold_no_gradient_and_are_in_32_bits() -> None:
    kl = torch.rand(2, 4, dtype=torch.bfloat16, requires_grad=True)
    sums = update_sums(value(kl), None, MASK, None)
    assert (sums.dtype, sums.requires_grad, sums.shape) == (torch.float32, False, (7,))


def test_what_a_loss_says_of_itself_is_a_mean_per_token_under_its_name() -> None:
    said = {"weight": torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2), "alike": torch.tensor([[5.0], [5.0]])}
    found = replace(value(), metrics=said)
    metrics = update_metrics(update_sums(found, None, MASK, None), tuple(said), kl=False, weighted=False)
    assert metrics["loss/weight"] == pytest.approx(float((said["weight"] * MASK).sum() / MASK.sum()))
    assert metrics["loss/alike"] == 5.0
