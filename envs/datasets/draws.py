"""Makes random choices that a seed fixes for good.

Only `Random.random` is drawn from: the one method whose sequence Python promises to keep across versions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of choices."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed).random

    def whole(self, low: int, high: int) -> int:
        """Returns a whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        """Returns True with probability `share`."""
        return self._random() < share

    def pick(self, values: Sequence[T]) -> T:
        return values[self.whole(0, len(values) - 1)]

    def take(self, values: list[T]) -> T:
        return values.pop(self.whole(0, len(values) - 1))
