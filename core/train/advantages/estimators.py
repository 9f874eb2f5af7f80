"""Computes the built-in advantages.

R is a completion's total, G the number of totals in its group. Deviations are unbiased, ignore NaN, add EPSILON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Le

from grpo.plugins.training import GroupScores
from grpo.plugins.training_decorators import advantage

if TYPE_CHECKING:
    import torch

EPSILON = 1e-4


def deviation(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns the unbiased standard deviation along `dim` of the entries that are not NaN; 0 of fewer than two."""
    present = ~values.isnan()
    number = present.sum(dim=dim)
    apart = (values - values.nanmean(dim=dim, keepdim=True)).masked_fill(~present, 0.0)
    return (apart.square().sum(dim=dim) / (number - 1).clamp(min=1)).sqrt()


def batch_deviation(values: torch.Tensor) -> torch.Tensor:
    """Returns the standard deviation of [groups, G] values over all groups, [1, 1]."""
    return deviation(values.reshape(1, -1), dim=1)[:, None]


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


@advantage(version=1, unbiased=True, turns=True)
def return_to_go(
    scores: GroupScores, *, discount: Annotated[float, Ge(0), Le(1)] = 1.0, scale: Literal["batch", "none"] = "none"
) -> torch.Tensor:
    """What a rollout earned from each turn on, less what the others of its group earned from there on.

    With r_s the reward of turn s, G_t = r_t + discount * r_(t+1) + ..., and A_(i,t) = G_(i,t) less the mean of G_(j,t)
    over the other rollouts that have a turn t; where none has, over the last turns of the others. Nothing that is taken
    off depends on what was done in the turn, so the policy gradient is that of the mean total, exactly, also where the
    policy decides how many turns there are: a mean with the rollout itself in it, or a deviation, of those that reach a
    turn would shrink late turns by how few these are. A rollout without others gets 0.

    Options:
        discount: what a reward one turn later is worth; below 1 the gradient is another one, of less variance.
        scale: divided by the standard deviation of all G_(i,t) of the batch, or by nothing.
    """
    rewards = scores.turns
    assert rewards is not None
    has = ~rewards.isnan()
    earned, ahead = rewards.nan_to_num(0.0), rewards.new_zeros(rewards.shape[:2])
    to_go = rewards.new_zeros(rewards.shape)
    for turn in reversed(range(rewards.shape[2])):
        ahead = earned[:, :, turn] + discount * ahead
        to_go[:, :, turn] = ahead
    lasts = has.sum(dim=2) - 1
    at_end = to_go.gather(2, lasts.clamp(min=0)[:, :, None]) * (lasts >= 0)[:, :, None]
    others = (has * to_go).sum(dim=1, keepdim=True) - has * to_go
    number = has.sum(dim=1, keepdim=True) - has.long()
    beside = at_end.sum(dim=1, keepdim=True) - at_end
    members = (lasts >= 0).sum(dim=1)[:, None, None] - (lasts >= 0)[:, :, None].long()
    baseline = (others / number.clamp(min=1)).where(number > 0, beside / members.clamp(min=1))
    value = (to_go - baseline).masked_fill(members == 0, 0.0)
    if scale == "batch":
        value = value / (deviation(to_go.masked_fill(~has, float("nan")).reshape(1, -1), dim=1) + EPSILON)
    return value
