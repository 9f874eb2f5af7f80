"""Computes advantages for rewards of 0 and 1 from how many of a group are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from grpo.plugins.training import GroupScores
from grpo.plugins.training_decorators import advantage

if TYPE_CHECKING:
    import torch


@advantage(version=1)
def maxrl(scores: GroupScores) -> torch.Tensor:
    """Totals less the mean of their group, over that mean: hard prompts count more.

    MaxRL, arXiv 2602.02710: A = (R - mean(R)) / mean(R) for totals of 0 and 1, and 0 where nobody is right. Its policy
    gradient approaches that of the log-likelihood of being right, the better the more completions a group has. Totals
    between 0 and 1 are taken as they are; below 0 they have no meaning here, and a group whose mean is not above 0 gets
    nothing.
    """
    totals = scores.totals
    mean = totals.nanmean(dim=1, keepdim=True)
    return ((totals - mean) / mean).masked_fill(~(mean > 0), 0.0)


@advantage(version=1)
def pass_at_k(scores: GroupScores, *, k: Annotated[int, Ge(1)], passes: float = 1.0) -> torch.Tensor:
    """What a completion adds to the chance that one of k is right: wrong answers are cheap while others are right.

    Pass@k training, arXiv 2508.10751, over all subsets of k of a group with N totals, of which W are wrong:
    P = 1 - C(W, k) / C(N, k), s = sqrt(P (1 - P)); a right one gets (1 - P) / s, and a wrong one
    (1 - P - C(W - 1, k - 1) / C(N - 1, k - 1)) / s. Where every subset passes, or none does, nobody gets anything. With
    fewer than k totals, k is their number.

    Options:
        k: how many tries there are.
        passes: the least total of a right completion.
    """
    totals = scores.totals
    present = ~totals.isnan()
    wrong = present & (totals < passes)
    number, misses = present.sum(dim=1, keepdim=True), wrong.sum(dim=1, keepdim=True)
    tries = number.clamp(max=k)
    # C(W, k) / C(N, k) and C(W - 1, k - 1) / C(N - 1, k - 1), as products of k factors that are 0 where W < k.
    none_right, none_right_beside = totals.new_ones(number.shape), totals.new_ones(number.shape)
    for drawn in range(k):
        share = (misses - drawn).clamp(min=0) / (number - drawn).clamp(min=1)
        none_right = none_right * share.masked_fill(drawn >= tries, 1.0)
        if drawn:
            none_right_beside = none_right_beside * share.masked_fill(drawn >= tries, 1.0)
    spread = (none_right * (1 - none_right)).sqrt()
    value = none_right - none_right_beside * wrong
    return (value / spread).masked_fill(~(spread > 0), 0.0)
