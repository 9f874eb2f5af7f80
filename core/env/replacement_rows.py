"""Chooses the rows that replace zero-signal groups, from the same environments, by seed or by the run's sampler."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from grpo.core.env.episodes import Episode
from grpo.core.env.mixture import RunEnv

Chosen = Callable[[str, int, int, Collection[int]], Sequence[int]]
Place = tuple[str, int]  # an environment's name, and the number of a row among those that it trains on


class ReplacementRows:
    """The rows of a run; `chosen` asks the run's sampler."""

    def __init__(self, envs: Sequence[RunEnv], seed: int, chosen: Chosen | None = None) -> None:
        self._chosen = chosen
        self._envs = {part.name: part for part in envs}
        self._seed = seed

    def at(self, place: Place) -> Episode:
        env, index = place
        return self._envs[env].train[index]

    def instead(self, gone: Sequence[Place], used: Collection[Place], step: int) -> list[Place | None]:
        """Returns another unused row of the same environment for each place, or None."""
        taken, places = set(used), list[Place | None]()
        for env, index in gone:
            rows = range(len(self._envs[env].train))
            if self._chosen is not None:
                order: Sequence[int] = self._chosen(env, 1, step, {row for name, row in taken if name == env})
            elif self._envs[env].env.ordered:
                order = [*rows[index + 1 :], *reversed(rows[:index])]
            else:
                some = min(len(rows), 1 + sum(name == env for name, _ in taken))  # of which one is not taken
                order = random.Random(f"{self._seed} {step} {env}").sample(rows, some)
            place = next(((env, row) for row in order if (env, row) not in taken), None)
            places.append(place)
            if place is not None:
                taken.add(place)
        return places
