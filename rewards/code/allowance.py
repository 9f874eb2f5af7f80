"""Sets the limits of a program while it is judged, and handles a busy machine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from grpo.plugins.sandbox_job import JobResult, Limits

_THREADS = 16
_ASLEEP = 0.05
_AT_WORK = 0.5
_SURELY = 0.95
PATIENCE = 4
"""So many times its time on the clock a test may take when it is tried again on a busy machine."""

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a program may use, and how far its tests go.

    `seconds`: processor time of one test; its time on the clock is twice that and one second. `memory_bytes`: memory of
    the program. `stop`: end at the first test that fails.
    """

    seconds: float = 5.0
    memory_bytes: int = 512 * 2**20
    stop: bool = False

    @property
    def wall_seconds(self) -> float:
        """Time on the clock of one test, in seconds."""
        return 2 * self.seconds + 1

    def limits(self, tests: int = 1) -> Limits:
        """Returns the limits of a program that is to pass so many tests in one process."""
        return Limits(
            cpu_seconds=self.seconds * tests,
            wall_seconds=self.wall_seconds * tests,
            memory_bytes=self.memory_bytes,
            threads=_THREADS,
        )


def starved(result: JobResult, tests: JobResult, allowance: Allowance, patience: float) -> bool:
    """Returns whether a late program had been waiting for the processor, and was not asleep.

    It also waits while its tests wait for the processor, but not while they wait for what it takes itself. A program
    that began after its tests had been kept waiting too. It was given `patience` times the time on the clock.
    """
    if result.waited_seconds is not None:
        waited = result.waited_seconds
        if tests is not result:
            waited += max(0.0, (tests.waited_seconds or 0.0) - result.cpu_seconds)
            waited += max(0.0, tests.wall_seconds - result.wall_seconds)
        return allowance.wall_seconds * patience - waited < allowance.wall_seconds * _SURELY
    return _ASLEEP * result.wall_seconds < result.cpu_seconds < _AT_WORK * result.wall_seconds


def retry_lock() -> asyncio.Lock:
    """Returns the running loop's lock for programs that are tried again: one at a time."""
    return _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
