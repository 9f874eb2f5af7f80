"""What a batch says about its rewards."""

from __future__ import annotations

import pytest
import torch

from grpo import Completion, reward
from grpo.core.config.sections import LossSection
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.batch import Batch, advantages_of, batch_metrics, trained_of
from grpo.plugins._binding import BoundReward
from grpo.plugins.errors import RunError


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
    advantages = advantages_of(outcomes, rewards, 2, "group", torch.device("cpu"))
    batch = Batch(1, (Completion("x"),) * 4, outcomes, advantages, 2, 0.0, 0.0)
    metrics = batch_metrics(batch, rewards)
    assert metrics["rewards/graded/tokens"] == 15
    assert metrics["rewards/graded/cached"] == 0
    assert metrics["rewards/graded/failure"] == pytest.approx(0.25)


def test_rollouts_that_a_budget_ended_leave_the_loss_when_asked() -> None:
    """The last token of such a rollout is an end token, so that TRL's own masking does not see them."""
    outcomes = {"graded": [Outcome("score", 1.0), Outcome("score", 0.0), Outcome("failure", reason="broke")]}
    advantages = advantages_of(outcomes, [BoundReward(graded, "dist")], 3, "group", torch.device("cpu"))
    cut = Completion("x", token_ids=(7, 2), finish_reason="length", turns=3)
    batch = Batch(1, (cut, Completion("x"), Completion("x")), outcomes, advantages, 3, 0.0, 0.0)
    assert trained_of(batch, LossSection()).tolist() == [True, True, False]
    assert trained_of(batch, LossSection(mask_truncated_completions=True)).tolist() == [False, True, False]


@pytest.mark.parametrize(("score", "weight"), [(1e200, 1.0), (1.0, 1e308)])
def test_rewards_that_overflow_end_the_run_instead_of_teaching_nothing(score: float, weight: float) -> None:
    outcomes = {"graded": [Outcome("score", 0.0), Outcome("score", score), Outcome("score", -score)]}
    with pytest.raises(RunError, match="the rewards of a step overflow"):
        advantages_of(outcomes, [BoundReward(graded, "dist", weight=weight)], 3, "group", torch.device("cpu"))
