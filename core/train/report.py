"""What a step says about itself: named numbers in as they come up, one mean for each name out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping


class StepReport:
    """The figures of one optimizer step. A name may come several times, once for each micro batch."""

    def __init__(self) -> None:
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, float]) -> None:
        """Adds figures to those that are there."""
        for name, value in values.items():
            self._values[name].append(value)

    def clear(self) -> None:
        """Forgets all figures: the step begins again."""
        self._values.clear()

    def take(self) -> dict[str, float | None]:
        """Returns the mean of each name's figures that are numbers, None where there is none, and begins anew."""
        means: dict[str, float | None] = {}
        for name, values in self._values.items():
            known = [value for value in values if not math.isnan(value)]
            means[name] = sum(known) / len(known) if known else None
        self.clear()
        return means
