"""Computes advantages of several rewards, each of which is normalised by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo.core.train.advantages.moments import EPSILON, batch_deviation, deviation
from grpo.plugins.training import GroupScores
from grpo.plugins.training_decorators import advantage

if TYPE_CHECKING:
    import torch


@advantage(version=1)
def gdpo(scores: GroupScores) -> torch.Tensor:
    """Rewards normalised one by one within the group, summed by weight, and normalised over the batch.

    GDPO, arXiv 2601.05242: with Z_k = (S_k - mean(S_k)) / (std(S_k) + 1e-4) of reward k over the group, and
    B = sum_k w_k Z_k, A = (B - mean(B)) / (std(B) + 1e-4) over the batch. Completions with
    the same total and another mix of rewards stay apart. An abstention adds nothing.
    """
    each = scores.scores
    normalised = (each - each.nanmean(dim=1, keepdim=True)) / (deviation(each, dim=1)[:, None] + EPSILON)
    summed = (normalised.nan_to_num(0.0) * scores.weights).sum(dim=2).masked_fill(scores.totals.isnan(), float("nan"))
    return (summed - summed.nanmean()) / (batch_deviation(summed) + EPSILON)
