"""Defines what samplers read, an environment's rows with their visits, and nothing else: resumed runs ask the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True)
class Visit:
    """A row was asked, and its completions were scored.

    Attributes:
        step: the optimizer step that first trained on it, from 1.
        rate: mean total of its completions, from 0.0 (the lowest that the rewards can give) to 1.0 (the highest); a
            pass rate where a reward is 0 or 1. None where a reward has no lowest or highest score, or none was given.
        signal: whether its completions had different totals, without which they teach nothing.
    """

    step: int
    rate: float | None
    signal: bool


@dataclass(frozen=True, slots=True)
class RowsSeen:
    """The rows of one environment, numbered from 0, as a sampler chooses from them.

    Attributes:
        rows: how many there are.
        count: how many to choose.
        step: the optimizer step that they are for, from 1.
        seed: of the run, and of the environment in it.
        visits: row to what became of it, oldest first; rows that were never asked are not in it.
        taken: rows of this step that are not to be chosen again.
    """

    rows: int
    count: int
    step: int
    seed: str = "0"
    visits: Mapping[int, Sequence[Visit]] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()

    def random(self) -> random.Random:
        """Returns random numbers that are the same whenever the same choice is made."""
        import random  # here: the list of plugins, which loads this module, does without

        return random.Random(f"{self.seed} {self.step} {len(self.taken)}")

    def longest_ago(self, rows: Sequence[int]) -> list[int]:
        """Returns rows in the order in which they were asked last, in a random one among those of one step."""
        mixed = self.random().sample(rows, len(rows))
        return sorted(mixed, key=lambda row: self.visits[row][-1].step if row in self.visits else 0)
