"""Gives code that draws from the global random numbers a sequence of its own, under one lock."""

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
        self._before: tuple[Any, Any] | None = None

    @contextmanager
    def used(self, seed: int | None = None) -> Iterator[None]:
        """Lets the block draw from these numbers, which `seed` starts anew."""
        self._take()
        try:
            if seed is not None:
                random.seed(seed)
                numpy.random.seed(seed % SEEDS)
            yield
        finally:
            self._give_back()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside of `used`: lets others have the process's numbers for the block, which waits for something."""
        if self._before is None:
            yield
            return
        self._give_back()
        try:
            yield
        finally:
            self._take()

    @property
    def state(self) -> tuple[Any, Any]:
        """Where they are, after a use: the states of Python's and of NumPy's numbers."""
        if self._kept is None:
            raise RuntimeError("these numbers were not used yet")
        return self._kept

    def _take(self) -> None:
        _one_at_a_time.acquire()
        self._before = random.getstate(), numpy.random.get_state()
        if self._kept is not None:
            _set(self._kept)

    def _give_back(self) -> None:
        assert self._before is not None
        self._kept = random.getstate(), numpy.random.get_state()
        _set(self._before)
        self._before = None
        _one_at_a_time.release()


def _set(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    numpy.random.set_state(state[1])
