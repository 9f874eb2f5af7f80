"""What a batch's scores are worth: scores in, totals and advantages out. A zero and no score are different things.

In: one score per completion and reward, NaN where the reward abstained, and which completions failed to be scored.
Out: totals, and what the run's advantage makes of them (core/train/advantages/, or a plugin's). The rules, whichever:

- A failed completion has no total and no advantage, and nobody is compared with it.
- An abstention counts as that reward's mean over the group's scored members, so it moves nobody.
- A completion on which every reward abstained has no total and no advantage either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grpo.core.train.advantages.moments import deviation
from grpo.plugins.errors import PluginError
from grpo.plugins.training import GroupScores

NO_SIGNAL = 1e-8


@dataclass(frozen=True, slots=True)
class Advantages:
    """Advantages of one batch; all tensors are float32 on the device of the scores.

    Attributes:
        totals: [N] weighted reward, NaN without one.
        values: [N] advantage, 0.0 without one.
        trained: [N] bool, False for failed completions: they belong in no loss, not even its KL term.
        group_std: [N / G] standard deviation of each group's totals, 0.0 with fewer than two of them.
        no_signal: share of groups whose totals are all alike.
    """

    totals: torch.Tensor
    values: torch.Tensor
    trained: torch.Tensor
    group_std: torch.Tensor
    no_signal: float


def group_advantages(
    scores: torch.Tensor,
    failed: torch.Tensor,
    weights: torch.Tensor,
    group_size: int,
    advantage: Callable[[GroupScores], torch.Tensor],
) -> Advantages:
    """Computes the advantages of a batch.

    Args:
        scores: [N, R] float, NaN for an abstention or a failure; members of a group are adjacent.
        failed: [N] bool, True where some reward failed.
        weights: [R] float.
        group_size: G; N is a multiple of it.
        advantage: what makes [N / G, G] advantages of scores; whatever it says of completions without a total is 0.

    Raises:
        PluginError: it returned another shape.
    """
    count, rewards = scores.shape
    exact = scores.double().masked_fill(failed[:, None], torch.nan).view(-1, group_size, rewards)
    scored = ~exact.isnan()
    # A reward on which the whole group abstained has no mean; it then adds 0 to everybody.
    filled = torch.where(scored, exact, exact.nanmean(dim=1, keepdim=True).nan_to_num(0.0))
    totals = (filled * weights.double()).sum(dim=2)
    totals = totals.masked_fill(~scored.any(dim=2), torch.nan)

    found = advantage(GroupScores(totals, exact, weights.double()))
    if not isinstance(found, torch.Tensor) or found.shape != totals.shape:
        what = f"shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
        raise PluginError(
            f"an advantage returned {what} for totals of shape {tuple(totals.shape)}; return one of these."
        )
    std = deviation(totals, dim=1)
    return Advantages(
        totals=totals.view(count).float(),
        values=found.masked_fill(totals.isnan(), 0.0).reshape(count).float(),
        trained=~failed,
        group_std=std.float(),
        no_signal=(std <= NO_SIGNAL).double().mean().item(),
    )
