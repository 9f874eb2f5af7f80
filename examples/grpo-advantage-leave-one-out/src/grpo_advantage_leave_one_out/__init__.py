"""Computes the leave-one-out advantage of each completion in its group.

Keep the imports light: every grpo command that lists plugins makes them, and tensors have all methods that are needed.
Completions that a reward failed on have the total NaN; what is returned for them does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo import AdvantageSpec, GroupScores, advantage, hookimpl

if TYPE_CHECKING:
    import torch

grpo_contract = 1


@advantage(version=1, unbiased=True)
def leave_one_out(scores: GroupScores, *, scale: float = 1.0) -> torch.Tensor:
    """The total of a completion less the mean of the others of its group, times a number.

    Args:
        scores: totals [groups, G] of the rewards, and the scores [groups, G, R] of each.
        scale: the number.
    """
    totals = scores.totals
    number = (~totals.isnan()).sum(dim=1, keepdim=True)
    centred = totals - totals.nanmean(dim=1, keepdim=True)
    return scale * centred * number / (number - 1).clamp(min=1)


@hookimpl
def grpo_advantages() -> list[AdvantageSpec]:
    """Offers the advantage to grpo."""
    return [leave_one_out]
