"""Lets idle OpenMP threads spin while the processors are mostly free, and sleep at once while others want them.

A thread that spins for 0.03 ms mostly need not be woken, and steps are a third faster. Beside other programs steps take
up to 2.7 times as long. GOMP_SPINCOUNT is read only once.

Theory of operation. libgomp spins GOMP_SPINCOUNT times only if it manages no more threads than there are processors,
and otherwise, where OMP_WAIT_POLICY is passive, not at all; it checks whenever a thread waits. So a thread of ours with
an idle team of its own, of more threads than processors, turns spinning off for all, and on again when it ends. Others
want the processors where their time, which Linux counts, leaves clearly fewer free than this process has threads, on
average over a second: beside a program that works for a third of the time, spinning still pays. (Waits for a processor
would not do: where threads sleep, waking them is such a wait, on a quiet machine too.) A run's own workers are busy
while it samples and scores and idle while it updates, so the two have a rule each.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo.core.processes.memory import BEFORE_TORCH

VARIABLE = "GOMP_SPINCOUNT"
LOOK = 0.25  # seconds from look to look at the use of the processors
NEWEST = 0.25  # weight of the last look in the average, so that programs that pause count by how long they work
WANTED = 0.25  # of a processor for each thread: if others take more, threads sleep,
FREE = 0.15  # and if they take less again, threads spin
IDLE = (3, 4)  # columns of /proc/stat: idle, and idle while a disk works
_watches: list[Watch] = []  # the one of this process


def watch_processors(threads: int) -> None:
    """Starts the watch of `threads` threads, once; not for one, without libgomp, or where GOMP_SPINCOUNT is set."""
    library = _libgomp()
    chosen = os.environ.get(VARIABLE, BEFORE_TORCH[VARIABLE]) != BEFORE_TORCH[VARIABLE]
    if threads > 1 and library is not None and not chosen and not _watches:
        _watches.append(Watch(Spinning(library), threads))
        threading.Thread(target=_watches[0].keep, name="grpo-spinning", daemon=True).start()


@contextmanager
def beside_workers() -> Iterator[None]:
    """Applies the rule for times in which the run's own workers are busy, while it lasts."""
    for watch in _watches:
        watch.look(workers=True)
    try:
        yield
    finally:
        for watch in _watches:
            watch.look(workers=False)


class Spinning:
    """Turns spinning of libgomp's threads off and on."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._parallel = library.GOMP_parallel  # the function of each thread, its argument, threads, flags
        self._parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        self._nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # of a null pointer
        self._over: threading.Event | None = None

    @property
    def off(self) -> bool:
        return self._over is not None

    def turn_off(self) -> None:
        """Makes threads sleep as soon as they wait."""
        if self._over is None:
            self._over, begun = threading.Event(), threading.Event()
            arguments = (self._over, begun)
            threading.Thread(target=self._hold_team, args=arguments, name="grpo-team", daemon=True).start()
            begun.wait()

    def turn_on(self) -> None:
        """Makes threads spin GOMP_SPINCOUNT times before they sleep."""
        if self._over is not None:
            self._over.set()
            self._over = None

    def _hold_team(self, over: threading.Event, begun: threading.Event) -> None:
        self._parallel(self._nothing, None, (os.cpu_count() or 1) + 1, 0)
        begun.set()
        over.wait()  # the team ends with this thread


class Rule:
    """Decides from the use of the processors whether others want them; `threads` of this process compute together."""

    def __init__(self, threads: int, processors: int) -> None:
        self._threads = threads
        self._spare = max(0, processors - threads)
        self._others = self._seconds = 0.0
        self._taken = 0.0  # of a processor for each thread, by others, on average
        self.wanted = False

    def add(self, busy: float, own: float, seconds: float) -> None:
        """Adds a use of the processors: in `seconds`, all programs took `busy` seconds and this process `own`."""
        self._others, self._seconds = self._others + busy - own, self._seconds + seconds
        if self._seconds < LOOK:
            return
        taken = (self._others / self._seconds - self._spare) / self._threads
        self._others = self._seconds = 0.0
        self._taken += NEWEST * (taken - self._taken)
        self.wanted = self._taken > (FREE if self.wanted else WANTED)


class Watch:
    """Turns spinning off and on, by one rule while the run's own workers are busy and another while they are idle."""

    def __init__(self, spinning: Spinning, threads: int) -> None:
        self._spinning = spinning
        self._processors = os.sched_getaffinity(0)
        self._alone, self._beside = (Rule(threads, len(self._processors)) for _ in range(2))
        self._rule = self._alone
        self._before = self._spent()
        self._looking = threading.Lock()

    def keep(self) -> None:
        """Looks at the processors again and again."""
        while True:
            time.sleep(LOOK)
            self.look()

    def look(self, *, workers: bool | None = None) -> None:
        """Measures the time since the last look for the rule in force; `workers`: whether they are busy from now on."""
        with self._looking:
            now = self._spent()
            self._rule.add(*(new - old for new, old in zip(now, self._before, strict=True)))
            self._before = now
            if workers is not None:
                self._rule = self._beside if workers else self._alone
            (self._spinning.turn_off if self._rule.wanted else self._spinning.turn_on)()

    def _spent(self) -> tuple[float, float, float]:
        return busy_seconds(self._processors), time.process_time(), time.monotonic()


def busy_seconds(processors: Collection[int]) -> float:
    """Returns how long some processors were at work, for whatever program, since the machine started."""
    ticks = 0
    for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in processors:
            ticks += sum(int(count) for column, count in enumerate(counts[:8]) if column not in IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def _libgomp() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/libgomp" in line}
    return ctypes.CDLL(paths.pop()) if len(paths) == 1 else None
