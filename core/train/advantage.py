"""Group-relative advantages that know the difference between a zero and no score.

In: one score per completion and reward, NaN where the reward abstained, and which completions failed to be scored.
Out: totals and advantages. The rules:

- A failed completion has no total and no advantage, and is outside its group's mean and standard deviation.
- An abstention counts as that reward's mean over the group's scored members, so it moves nobody.
- A completion on which every reward abstained has no total and no advantage either.

Advantage: A_i = (R_i - mean(R)) / (std(R) + 1e-4) over the group (GRPO, arXiv 2402.03300, eq. 3), with R_i the
weighted sum of scores; `scale="batch"` divides by the standard deviation of the batch, `"none"` by nothing (Dr. GRPO,
2503.20783). Standard deviations are unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

EPSILON = 1e-4
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
    scale: Literal["group", "batch", "none"],
) -> Advantages:
    """Computes the advantages of a batch.

    Args:
        scores: [N, R] float, NaN for an abstention or a failure; members of a group are adjacent.
        failed: [N] bool, True where some reward failed.
        weights: [R] float.
        group_size: G; N is a multiple of it.
        scale: what advantages are divided by.
    """
    count, rewards = scores.shape
    exact = scores.double().masked_fill(failed[:, None], torch.nan).view(-1, group_size, rewards)
    scored = ~exact.isnan()
    # A reward on which the whole group abstained has no mean; it then adds 0 to everybody.
    filled = torch.where(scored, exact, exact.nanmean(dim=1, keepdim=True).nan_to_num(0.0))
    totals = (filled * weights.double()).sum(dim=2)
    totals = totals.masked_fill(~scored.any(dim=2), torch.nan)

    std = _unbiased_std(totals, dim=1)
    centred = totals - totals.nanmean(dim=1, keepdim=True)
    if scale == "group":
        centred = centred / (std[:, None] + EPSILON)
    elif scale == "batch":
        centred = centred / (_unbiased_std(totals.view(1, -1), dim=1) + EPSILON)
    return Advantages(
        totals=totals.view(count).float(),
        values=centred.view(count).nan_to_num(0.0).float(),
        trained=~failed,
        group_std=std.float(),
        no_signal=(std <= NO_SIGNAL).double().mean().item(),
    )


def _unbiased_std(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Standard deviation along `dim` over the entries that are not NaN; 0 where there are fewer than two."""
    present = ~values.isnan()
    number = present.sum(dim=dim)
    deviation = (values - values.nanmean(dim=dim, keepdim=True)).masked_fill(~present, 0.0)
    return (deviation.square().sum(dim=dim) / (number - 1).clamp(min=1)).sqrt()
