"""What a step says about itself: means of what is known, and nothing of the step before."""

from __future__ import annotations

import math

from grpo.core.train.report import StepReport


def test_figures_of_micro_batches_become_a_mean_of_those_that_are_numbers() -> None:
    report = StepReport()
    report.add({"entropy": 1.0, "kl": math.nan})
    report.add({"entropy": 2.0, "kl": 0.5})
    report.add({"reward": math.nan})
    assert report.take() == {"entropy": 1.5, "kl": 0.5, "reward": None}


def test_a_step_begins_without_the_figures_of_the_one_before() -> None:
    report = StepReport()
    report.add({"entropy": 1.0})
    report.take()
    report.add({"kl": 1.0})
    report.clear()
    report.add({"reward": 3.0})
    assert report.take() == {"reward": 3.0}


def test_a_figure_that_is_known_better_with_each_micro_batch_is_the_last_one() -> None:
    report = StepReport()
    for largest in (1.0, 4.0, 5.0):
        report.replace({"difference/max": largest})
    assert report.take() == {"difference/max": 5.0}
