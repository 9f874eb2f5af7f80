"""Computes statistics of a batch's rewards that show trends over a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from grpo.core.scoring.outcome import Outcome
from grpo.core.text.stats import mean
from grpo.plugins._spec.binding import BoundReward

SLOW = 0.1  # seconds from which on a call is one that may run into a limit


def parts_of_differences(
    scores: torch.Tensor, weights: torch.Tensor, trained: torch.Tensor, group_size: int
) -> torch.Tensor:
    """Returns what share of the differences in total, within groups, comes from each reward; NaN without any.

    The shares add up to 1; one is negative where its reward goes against the total.

    Args:
        scores: [N, R], NaN where a reward abstained, which adds nothing.
        weights: [R].
        trained: [N] bool, which completions are compared.
        group_size: members of a group are adjacent.
    """
    parts = (scores.nan_to_num(0.0) * weights).view(-1, group_size, len(weights))
    known = trained.view(-1, group_size, 1)
    middle = (parts * known).sum(dim=1, keepdim=True) / known.sum(dim=1, keepdim=True).clamp(min=1)
    centred = (parts - middle) * known
    total = centred.sum(dim=2, keepdim=True)
    return (centred * total).sum(dim=(0, 1)) / (total**2).sum()


def lowest_metrics(reward: BoundReward, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
    """Returns the share of scores that are the lowest there is, and how much longer their calls took than others'.

    The first is there where the reward says what its lowest score is; the second is NaN unless there are such scores
    and others, and the calls of the lowest took SLOW seconds or more on average.
    """
    low = reward.spec.range[0]
    scored = [outcome for outcome in outcomes if outcome.score is not None]
    if not math.isfinite(low) or not scored:
        return {}
    lowest = [outcome.seconds for outcome in scored if outcome.score == low]
    others = [outcome.seconds for outcome in scored if outcome.score != low]
    slow = bool(others) and mean(lowest) >= SLOW if lowest else False
    return {
        f"rewards/{reward.name}/lowest": len(lowest) / len(scored),
        f"time/lowest/{reward.name}": mean(lowest) / max(mean(others), 1e-6) if slow else math.nan,
    }
