"""Computes how replacing one set of rewards with another would change the training signal of recorded groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch

from grpo.core.scoring.outcome import Outcome
from grpo.core.text.stats import mean_or_none
from grpo.core.train.advantages.compute import NO_SIGNAL, group_advantages
from grpo.core.train.advantages.estimators import group_mean
from grpo.plugins.training import GroupScores

Advantage = Callable[[GroupScores], torch.Tensor]
_NOTICED = 0.005


@dataclass(frozen=True, slots=True)
class Side:
    """One completion under one set of rewards: its weighted total (None without one) and its advantage."""

    total: float | None
    advantage: float


@dataclass(frozen=True, slots=True)
class Change:
    """One completion under both sets."""

    index: int  # its position
    group: Hashable  # its group
    # old, new: what it gets
    old: Side
    new: Side

    @property
    def flipped(self) -> bool:
        """True when what was encouraged is now discouraged, or the other way round."""
        return self.old.advantage * self.new.advantage < 0

    @property
    def shift(self) -> float:
        return abs(self.new.advantage - self.old.advantage)


@dataclass(frozen=True, slots=True)
class Difference:
    """What a change of rewards does to a set of completions."""

    changes: tuple[Change, ...]  # one for each completion, in order
    groups: int  # how many groups there are
    lost_signal: tuple[Hashable, ...]  # groups that taught something and no longer do
    gained_signal: tuple[Hashable, ...]  # groups that taught nothing and now do
    # mean_old, mean_new: mean totals, or None without any
    mean_old: float | None
    mean_new: float | None
    # unscored_old, unscored_new: completions without a total
    unscored_old: int
    unscored_new: int

    @property
    def flips(self) -> tuple[Change, ...]:
        """The completions whose advantage changed its sign."""
        return tuple(change for change in self.changes if change.flipped)

    @property
    def mean_shift(self) -> float:
        """The mean distance that advantages moved."""
        return sum(change.shift for change in self.changes) / max(1, len(self.changes))

    def worst(self, limit: int) -> list[Change]:
        """Returns the completions that changed most: those that flipped first, then by how far they moved."""
        moved = [change for change in self.changes if change.shift > _NOTICED]
        return sorted(moved, key=lambda change: (not change.flipped, -change.shift, change.index))[:limit]


def compare(
    groups: Sequence[Hashable],
    old: Mapping[str, Sequence[Outcome]],
    new: Mapping[str, Sequence[Outcome]],
    old_weights: Mapping[str, float],
    new_weights: Mapping[str, float],
    advantage: Advantage = group_mean,
) -> Difference:
    """Compares two sets of rewards, by name, on the same completions; each group is one batch to `advantage`."""
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    before, alive_before = _sides(members, old, old_weights, advantage)
    after, alive_after = _sides(members, new, new_weights, advantage)
    changes = tuple(Change(index, group, before[index], after[index]) for index, group in enumerate(groups))
    return Difference(
        changes,
        len(members),
        lost_signal=tuple(group for group in members if group in alive_before and group not in alive_after),
        gained_signal=tuple(group for group in members if group in alive_after and group not in alive_before),
        mean_old=_mean(before),
        mean_new=_mean(after),
        unscored_old=sum(side.total is None for side in before.values()),
        unscored_new=sum(side.total is None for side in after.values()),
    )


def _sides(
    members: Mapping[Hashable, Sequence[int]],
    outcomes: Mapping[str, Sequence[Outcome]],
    weights: Mapping[str, float],
    advantage: Advantage,
) -> tuple[dict[int, Side], set[Hashable]]:
    sides: dict[int, Side] = {}
    alive: set[Hashable] = set()
    weight = torch.tensor([weights[name] for name in outcomes])
    for group, indices in members.items():
        rows = [[outcomes[name][index] for name in outcomes] for index in indices]
        scores = torch.tensor([[torch.nan if o.score is None else o.score for o in row] for row in rows])
        failed = torch.tensor([any(o.kind == "failure" for o in row) for row in rows])
        got = group_advantages(scores.double(), failed, weight, len(indices), advantage)
        if got.group_std.item() > NO_SIGNAL:
            alive.add(group)
        for index, total, worth in zip(indices, got.totals.tolist(), got.values.tolist(), strict=True):
            sides[index] = Side(None if total != total else total, worth)
    return sides, alive


def _mean(sides: Mapping[int, Side]) -> float | None:
    return mean_or_none([side.total for side in sides.values() if side.total is not None])
