"""Random numbers of one's own for code that draws from the process's: a seed in, the same draws out for everybody.

Theory of operation. Rollouts are played side by side, and some libraries draw from the global numbers of Python and of
NumPy. While such code runs in `OwnNumbers.used`, the global state is set to where this user of it left it, and put back
afterwards, under one lock for all of them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy

SEEDS = 2**32
_one_at_a_time = threading.RLock()


class OwnNumbers:
    """Random numbers of one user in the place of the process's."""

    def __init__(self) -> None:
        self._kept: tuple[Any, Any] | None = None

    @contextmanager
    def used(self, seed: int | None = None) -> Iterator[None]:
        """Lets the block draw from these numbers, which `seed` starts anew."""
        with _one_at_a_time:
            before = random.getstate(), numpy.random.get_state()
            try:
                if seed is not None:
                    random.seed(seed)
                    numpy.random.seed(seed % SEEDS)
                elif self._kept is not None:
                    random.setstate(self._kept[0])
                    numpy.random.set_state(self._kept[1])
                yield
                self._kept = random.getstate(), numpy.random.get_state()
            finally:
                random.setstate(before[0])
                numpy.random.set_state(before[1])
