"""Declares the values that parts of training exchange: a generation, its samplers, its scoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from grpo.core.env.episodes import Episode
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.rollout.types import PromptIds
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.outcome import Outcome
from grpo.plugins.types import Completion


class BatchScoring(Protocol):
    def begin(self) -> EarlyCalls:
        """Returns what starts scoring the completions of a batch as they end."""

    def score(self, completions: Sequence[Completion], early: EarlyCalls) -> dict[str, list[Outcome]]:
        """Scores the whole batch, with what was begun; reward name to one outcome per completion."""


@dataclass(frozen=True, slots=True)
class Wasted:
    """Samples that are not trained on."""

    group: int  # the number of the group of the batch that it was sampled for
    start: Episode
    prompt: Sequence[int]
    rollout: Trajectory
    # what each reward said of it: a failure, or what the others of its group were given too
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True, slots=True)
class Generation:
    episodes: Sequence[Episode]
    prompts: PromptIds
    rollouts: Sequence[Trajectory]
    early: EarlyCalls
    staleness: int = 0  # optimizer steps between the policy that sampled them and the one that they were asked for
    metrics: Mapping[str, float] = field(default_factory=dict)
    # reward name to one outcome per rollout; None where they were not scored yet
    outcomes: dict[str, list[Outcome]] | None = None
    wasted: tuple[Wasted, ...] = ()
    score_seconds: float = 0.0  # wall time of these outcomes
    waiting: int = 0  # completions whose scores were begun and had not come when the last one ended, before any outcome
    tokens: int | None = None  # that were sampled when it was asked for, where these are others than its own; else None


# Episodes, and the numbers of their random draws among those of the step, to their rollouts; None where they cannot be
# had from the same weights any more.
SampleMore = Callable[[Sequence[Episode], Sequence[int]], Generation | None]
Fill = Callable[[Generation, int, SampleMore], Generation]  # a batch, its step and what samples more to a full one

EpisodesOf = Callable[[int], Sequence[Episode]]  # a step to this process's episodes of its batch; none after the last


class Sampler(Protocol):
    """Samples batch after batch. All processes ask alike. By default nothing is sampled ahead, nor written."""

    def next(self, episodes: Sequence[Episode], step: int, *, again: bool = False) -> Generation:
        """Returns a rollout for each of these episodes, groups adjacent, for the optimizer step (from 1) that begins.

        `again`: the weights of the rollout backend are in doubt.
        """

    def ahead(self, step: int, episodes_of: EpisodesOf) -> Mapping[str, float]:
        """Samples batches of later steps while the batch of a step trains. Returns metrics."""
        return {}

    def settle(self, step: int) -> Mapping[str, float]:
        """Waits until nothing is sampled from the weights, which are about to change. Returns metrics."""
        return {}

    def save(self, checkpoint: Path) -> None:
        """Writes what a resumed run needs into the folder of a checkpoint."""
        return

    def load(self, checkpoint: Path) -> None:
        """Reads what `save` wrote."""
        return

    def close(self) -> None:
        """Drops whatever is still being sampled."""
        return
