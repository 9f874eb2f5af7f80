"""What a batch says about its rewards."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from grpo import Completion, reward
from grpo.core.config.sections import LossSection
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.advantages.estimators import group_mean
from grpo.core.train.batch.batch import Batch, advantages_of, refuse_overflow, stop_on_failures, trained_of
from grpo.core.train.batch.metrics import batch_metrics, session_metrics
from grpo.plugins._spec.binding import BoundAdvantage, BoundReward
from grpo.plugins.errors import RunError

MEAN = BoundAdvantage(group_mean)


@reward(version=1)
def graded(completion: str) -> float:
    return 1.0


def test_figures_beside_scores_are_means_over_the_completions_that_report_them() -> None:
    outcomes = {
        "graded": [
            Outcome("score", 1.0, metrics={"tokens": 10, "cached": 0.0}),
            Outcome("score", 0.0, metrics={"tokens": 20}),
            Outcome("failure", reason="broke"),
            Outcome("abstain"),
        ]
    }
    rewards = [BoundReward(graded, "dist")]
    advantages = advantages_of(outcomes, rewards, 2, MEAN, torch.device("cpu"))
    batch = Batch(1, (Completion("x"),) * 4, outcomes, advantages, 2, 0.0, 0.0)
    metrics = batch_metrics(batch, rewards)
    assert metrics["rewards/graded/tokens"] == 15
    assert metrics["rewards/graded/cached"] == 0
    assert metrics["rewards/graded/failure"] == pytest.approx(0.25)


def test_what_each_reward_has_of_the_differences_within_groups_adds_up_to_all() -> None:
    first, second = (Outcome("score", value) for value in (1.0, 0.0))
    outcomes = {
        "graded": [first, second, first, second, Outcome("failure", reason="broke"), first],
        "other": [Outcome("score", value) for value in (0.5, 0.0, 0.0, 0.5, 9.0, 0.0)],
    }
    rewards = [BoundReward(graded, "dist"), BoundReward(replace(graded, name="other"), "dist", weight=2.0)]
    advantages = advantages_of(outcomes, rewards, 2, MEAN, torch.device("cpu"))
    batch = Batch(1, (Completion("x"),) * 6, outcomes, advantages, 2, 0.0, 0.0)
    metrics = batch_metrics(batch, rewards)
    # They agree in the first group, cancel out in the second, and the third has one member that trains.
    assert metrics["rewards/graded/of_differences"] == pytest.approx(0.5)
    assert metrics["rewards/other/of_differences"] == pytest.approx(0.5)
    alone = batch_metrics(replace(batch, outcomes={**outcomes, "other": [Outcome("abstain")] * 6}), rewards)
    assert alone["rewards/graded/of_differences"] == pytest.approx(1.0)
    assert alone["rewards/other/of_differences"] == pytest.approx(0.0)


def test_the_lowest_scores_are_counted_and_timed_where_their_calls_are_slow() -> None:
    bounded = [BoundReward(replace(graded, range=(0.0, 1.0)), "dist")]
    slow = [Outcome("score", 0.0, seconds=2.0), *[Outcome("score", 0.5, seconds=0.25)] * 3]
    metrics = batch_metrics(batch_of(slow), bounded)
    assert (metrics["rewards/graded/lowest"], metrics["time/lowest/graded"]) == (0.25, pytest.approx(8.0))
    quick = batch_metrics(batch_of([one._replace(seconds=one.seconds / 100) for one in slow]), bounded)
    assert quick["rewards/graded/lowest"] == 0.25
    assert math.isnan(quick["time/lowest/graded"])
    assert "rewards/graded/lowest" not in batch_metrics(batch_of(slow), [BoundReward(graded, "dist")])


def test_episodes_with_sessions_have_metrics_of_their_own() -> None:
    infos: list[dict[str, Any]] = [
        {"rewards": [0.0, 1.0], "machine_seconds": 3.0},
        {"rewards": [0.0], "machine_seconds": 1.0},
        {"rewards": [0.0]},
    ]
    metrics = session_metrics([Completion("x", info=info) for info in infos])
    assert (metrics["sessions/zeros"], metrics["time/sessions"]) == (0.5, 2.0)
    assert metrics["time/load"] >= 0
    assert session_metrics([Completion("x", info={"failure": "broke"})]) == {}


def test_rollouts_that_a_budget_ended_leave_the_loss_when_asked() -> None:
    """The last token of such a rollout is an end token, so that TRL's own masking does not see them."""
    outcomes = {"graded": [Outcome("score", 1.0), Outcome("score", 0.0), Outcome("failure", reason="broke")]}
    advantages = advantages_of(outcomes, [BoundReward(graded, "dist")], 3, MEAN, torch.device("cpu"))
    cut = Completion("x", token_ids=(7, 2), finish_reason="length", turns=3)
    batch = Batch(1, (cut, Completion("x"), Completion("x")), outcomes, advantages, 3, 0.0, 0.0)
    assert trained_of(batch, LossSection()).tolist() == [True, True, False]
    assert trained_of(batch, LossSection(mask_truncated_completions=True)).tolist() == [False, True, False]


@pytest.mark.parametrize(("score", "weight"), [(1e200, 1.0), (1.0, 1e308)])
def test_rewards_that_overflow_end_the_run_instead_of_teaching_nothing(score: float, weight: float) -> None:
    outcomes = {"graded": [Outcome("score", 0.0), Outcome("score", score), Outcome("score", -score)]}
    rewards = [BoundReward(graded, "dist", weight=weight)]
    advantages = advantages_of(outcomes, rewards, 3, MEAN, torch.device("cpu"))
    batch = Batch(1, (Completion("x"),) * 3, outcomes, advantages, 3, 0.0, 0.0)
    with pytest.raises(RunError, match="the rewards of a step overflow"):
        refuse_overflow(batch, rewards, MEAN)


def batch_of(scores: list[Outcome], completions: tuple[Completion, ...] | None = None) -> Batch:
    outcomes = {"graded": scores}
    advantages = advantages_of(outcomes, [BoundReward(graded, "dist")], 2, MEAN, torch.device("cpu"))
    return Batch(1, completions or (Completion("x"),) * len(scores), outcomes, advantages, 2, 0.0, 0.0)


def test_the_spread_of_large_scores_is_known_and_that_of_others_keeps_its_digits() -> None:
    rewards = [BoundReward(graded, "dist")]
    large = batch_metrics(batch_of([Outcome("score", value) for value in (1e25, -1e25, 1e25, -1e25)]), rewards)
    assert large["rewards/graded/std"] == pytest.approx(1e25 * (4 / 3) ** 0.5)
    usual = batch_metrics(batch_of([Outcome("score", value) for value in (0.1, 0.7, 0.2, 0.4)]), rewards)
    column = torch.tensor([0.1, 0.7, 0.2, 0.4])
    assert usual["rewards/graded/mean"] == column.mean().item()
    assert usual["rewards/graded/std"] == (((column - column.mean()) ** 2).mean() * (4 / 3)).sqrt().item()


def test_rollouts_that_their_environment_failed_are_not_counted_for_a_reward() -> None:
    """The reward failed on two of the three that it was called for."""
    failed = Completion("x", finish_reason="error", info={"failure": "the game broke"})
    scores = [Outcome("failure", reason="the game broke"), *[Outcome("failure", reason="it broke")] * 2]
    scores += [Outcome("score", 1.0)]
    batch = batch_of(scores, (failed, *(Completion("x"),) * 3))
    stop_on_failures(batch, [BoundReward(graded, "dist")], 0.67)
    with pytest.raises(RunError, match=r"failed on 2 of 3 completions in step 1, over failures.stop_share 0.6"):
        stop_on_failures(batch, [BoundReward(graded, "dist")], 0.6)
