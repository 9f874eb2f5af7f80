"""Computes the advantages of a batch from its scores.

- A failed completion has no total and no advantage, and nobody is compared with it.
- An abstention counts as that reward's mean over the group's scored members, so it moves nobody.
- A completion on which every reward abstained has no total and no advantage either.
- With per-turn advantages, a reward's score for the whole rollout is earned in its last turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grpo.core.train.advantages.estimators import deviation
from grpo.plugins.errors import PluginError
from grpo.plugins.training import GroupScores

NO_SIGNAL = 1e-8


@dataclass(frozen=True, slots=True)
class Advantages:
    """Advantages of one batch; all tensors are float32 on the device of the scores."""

    totals: torch.Tensor  # [N] weighted reward, NaN without one
    values: torch.Tensor  # [N] advantage, 0.0 without one; where turns have their own, the mean of these
    trained: torch.Tensor  # [N] bool, False for failed completions: they belong in no loss, not even its KL term
    group_std: torch.Tensor  # [N / G] standard deviation of each group's totals, 0.0 with fewer than two of them
    # [N / G] bool, groups without signal: totals are all alike, and where turns count, what was earned from each turn
    # on
    alike: torch.Tensor
    # [N, T] what each turn earned of the total, NaN after the last; None where turns do not count
    earned: torch.Tensor | None = None
    # [N, T] advantage of each turn, 0.0 without one; None: all of a completion have the same
    turns: torch.Tensor | None = None

    @property
    def teaches(self) -> torch.Tensor:
        """[N] bool, completions with an advantage, NaN and infinity included; those of turns may have the mean 0."""
        worth = self.values[:, None] if self.turns is None else self.turns
        return ~(worth.abs().amax(dim=1) <= NO_SIGNAL)

    @property
    def no_signal(self) -> float:
        """Share of groups without signal."""
        return self.alike.double().mean().item()


def group_advantages(
    scores: torch.Tensor,
    failed: torch.Tensor,
    weights: torch.Tensor,
    group_size: int,
    advantage: Callable[[GroupScores], torch.Tensor],
    each: torch.Tensor | None = None,
) -> Advantages:
    """Computes the advantages of a batch. Raises PluginError if `advantage` returns another shape than [N / G, G].

    `scores`: [N, R] float, NaN for an abstention or a failure; members of a group are adjacent. `failed`: [N] bool.
    `weights`: [R]. `each`: [N, T, R] what each turn earned of the scores, NaN after the last turn and without a score;
    then `advantage` may return [N / G, G, T]. Its values for completions without a total and missing turns are set to
    0.
    """
    count, rewards = scores.shape
    exact = scores.double().masked_fill(failed[:, None], torch.nan).view(-1, group_size, rewards)
    scored = ~exact.isnan()
    # A reward on which the whole group abstained has no mean; it then adds 0 to everybody.
    filled = torch.where(scored, exact, exact.nanmean(dim=1, keepdim=True).nan_to_num(0.0))
    totals = (filled * weights.double()).sum(dim=2)
    totals = totals.masked_fill(~scored.any(dim=2), torch.nan)

    earned = None if each is None else _earned(each.double().view(*totals.shape, -1, rewards), filled, totals, weights)
    advantages = advantage(GroupScores(totals, exact, weights.double(), earned))
    shapes = [totals.shape] if earned is None else [earned.shape, totals.shape]
    if not isinstance(advantages, torch.Tensor) or advantages.shape not in shapes:
        what = f"shape {tuple(advantages.shape)}" if isinstance(advantages, torch.Tensor) else type(advantages).__name__
        wanted = "" if earned is None else f" of {earned.shape[2]} turns"
        raise PluginError(
            f"it returned {what} for totals of shape {tuple(totals.shape)}{wanted}; return "
            f"{' or '.join(str(tuple(shape)) for shape in shapes)}."
        )
    turns = None
    if earned is not None and advantages.shape == earned.shape:
        turns = advantages.masked_fill(earned.isnan(), 0.0)
        advantages = turns.sum(dim=2) / (~earned.isnan()).sum(dim=2).clamp(min=1)
    std = deviation(totals, dim=1)
    return Advantages(
        totals=totals.view(count).float(),
        values=advantages.masked_fill(totals.isnan(), 0.0).reshape(count).float(),
        trained=~failed,
        group_std=std.float(),
        alike=(std <= NO_SIGNAL) & (True if earned is None else _alike_from_each_turn_on(earned)),
        earned=None if earned is None else earned.view(count, -1).float(),
        turns=None if turns is None else turns.view(count, -1).float(),
    )


def _earned(each: torch.Tensor, filled: torch.Tensor, totals: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Returns what each turn earned of the total, [groups, G, T], NaN after the last turn and without a total."""
    present = ~each.isnan()
    of_turns = (each.nan_to_num(0.0) * weights.double()).sum(dim=3)
    remainder = ((filled - each.nan_to_num(0.0).sum(dim=2)) * weights.double()).sum(dim=2)  # of no turn
    has = present.any(dim=3)
    last = has & (has.sum(dim=2, keepdim=True) == has.long().cumsum(dim=2))
    of_turns = of_turns + last * remainder[:, :, None]
    return of_turns.masked_fill(~has | totals.isnan()[:, :, None], torch.nan)


def _alike_from_each_turn_on(earned: torch.Tensor) -> torch.Tensor:
    """Returns for which groups [groups] all that have a turn earned the same from there on."""
    to_go = earned.nan_to_num(0.0).flip(2).cumsum(dim=2).flip(2).masked_fill(earned.isnan(), torch.nan)
    return (deviation(to_go, dim=1) <= NO_SIGNAL).all(dim=1)
