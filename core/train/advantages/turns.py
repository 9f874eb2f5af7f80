"""Computes advantages of single turns: what a rollout earned from a turn on, less what others earned from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Le

from grpo.core.train.advantages.moments import EPSILON, deviation
from grpo.plugins.training import GroupScores
from grpo.plugins.training_decorators import advantage

if TYPE_CHECKING:
    import torch


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
