"""What a batch says about its rewards."""

from __future__ import annotations

import pytest
import torch

from grpo import Completion, reward
from grpo.core.batch import Batch, advantages_of, batch_metrics
from grpo.core.score_outcome import Outcome
from grpo.plugins.binding import BoundReward


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
