"""Computes advantages as totals less a baseline: that of the group, of its other members, or of the batch.

R is the total of a completion, G the number of completions of its group that have one. Standard deviations are
unbiased, and divide with 1e-4 added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from grpo.core.train.advantages.moments import EPSILON, batch_deviation, deviation
from grpo.plugins.training import GroupScores
from grpo.plugins.training_decorators import advantage

if TYPE_CHECKING:
    import torch


@advantage(version=1)
def group_mean(scores: GroupScores, *, scale: Literal["group", "batch", "none"] = "group") -> torch.Tensor:
    """Totals less the mean of their group, over a standard deviation.

    GRPO, arXiv 2402.03300, eq. 3: A = (R - mean(R)) / (std(R) + 1e-4). Dividing by the deviation of the group weighs
    prompts that are almost always or almost never answered more; without it (Dr. GRPO, 2503.20783) the policy gradient
    is that of the mean total, times (G - 1) / G.

    Options:
        scale: the deviation of the group, that of all totals of the batch, or nothing.
    """
    totals = scores.totals
    centred = totals - totals.nanmean(dim=1, keepdim=True)
    if scale == "group":
        return centred / (deviation(totals, dim=1)[:, None] + EPSILON)
    return centred / (batch_deviation(totals) + EPSILON) if scale == "batch" else centred


@advantage(version=1, unbiased=True)
def rloo(scores: GroupScores) -> torch.Tensor:
    """Totals less the mean of the others of their group.

    Leave-one-out REINFORCE (RLOO), arXiv 2402.14740: A_i = R_i - mean of R_j over j != i, which is (R - mean(R)) times
    G / (G - 1). The policy gradient is that of the mean total, exactly. A completion without others gets 0.
    """
    totals = scores.totals
    number = (~totals.isnan()).sum(dim=1, keepdim=True)
    return (totals - totals.nanmean(dim=1, keepdim=True)) * number / (number - 1).clamp(min=1)


@advantage(version=1)
def reinforce_plus_plus(scores: GroupScores, *, baseline: Literal["none", "group"] = "none") -> torch.Tensor:
    """Totals normalised over the whole batch, with or without the mean of their group taken off before.

    REINFORCE++, arXiv 2501.03262: A = (B - mean(B)) / (std(B) + 1e-4) over all completions of the batch, with B = R, or
    B = R less the mean of its group (REINFORCE++-baseline). The paper's KL penalty is the loss's `loss.beta` here.
    Without a baseline, groups that are right throughout are reinforced too.

    Options:
        baseline: what is taken off each total first.
    """
    totals = scores.totals
    if baseline == "group":
        totals = totals - totals.nanmean(dim=1, keepdim=True)
    return (totals - totals.nanmean()) / (batch_deviation(totals) + EPSILON)
