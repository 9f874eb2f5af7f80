"""Collects the figures of a step by name and averages each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

BESIDE_THE_UPDATE = ("time/generate", "time/score", "time/ahead_wait", "time/record", "time/canaries")
UPDATE_SECONDS = "time/update"


def update_seconds(row: Mapping[str, float | None]) -> float:
    """Returns the seconds of a step that went into forward and backward passes and the optimizer."""
    return max(0.0, (row.get("time/step") or 0.0) - sum(row.get(name) or 0.0 for name in BESIDE_THE_UPDATE))


class StepReport:
    """The figures of one optimizer step. A name may come once for each micro batch."""

    def __init__(self) -> None:
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._values[name].append(value)

    def replace(self, values: Mapping[str, float]) -> None:
        """Replaces figures that are known better with each micro batch."""
        for name, value in values.items():
            self._values[name] = [value]

    def clear(self) -> None:
        """Clears all figures: the step begins again."""
        self._values.clear()

    def take(self) -> dict[str, float | None]:
        """Returns the mean of each name's finite figures, None where there is none, and clears them."""
        means: dict[str, float | None] = {}
        for name, values in self._values.items():
            known = [value for value in values if not math.isnan(value)]
            means[name] = sum(known) / len(known) if known else None
        self.clear()
        return means
