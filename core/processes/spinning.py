"""Lets idle OpenMP threads spin while the processors are free, and sleep at once while others want them.

A thread that spins for 0.03 ms mostly need not be woken, and steps are a third faster. Beside other programs steps take
up to 2.7 times as long. GOMP_SPINCOUNT is read only once.

Theory of operation. libgomp spins GOMP_SPINCOUNT times only if it manages no more threads than there are processors,
and otherwise, where OMP_WAIT_POLICY is passive, not at all; it checks whenever a thread waits. So a thread of ours with
an idle team of its own, of more threads than processors, turns spinning off for all, and on again when it ends. Others
want the processors where their time, which Linux counts, leaves fewer free than this process has threads. (Waits for a
processor would not do: where threads sleep, waking them is such a wait, on a quiet machine too.)
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path

from grpo.core.processes.memory import BEFORE_TORCH

VARIABLE = "GOMP_SPINCOUNT"
LOOK = 0.5  # seconds from one look at the processors to the next
WANTED, FREE = 0.1, 0.05  # of a processor for each thread: what others have to take, and may take
CALM = 10  # looks in a row that find the processors free before threads spin again: programs that pause come back
IDLE = (3, 4)  # columns of /proc/stat: idle, and idle while a disk works
_started = threading.Lock()  # for good, by the one watch of this process


def watch_processors(threads: int) -> None:
    """Starts the watch of `threads` threads, once; not for one, without libgomp, or where GOMP_SPINCOUNT is set."""
    library = _libgomp()
    chosen = os.environ.get(VARIABLE, BEFORE_TORCH[VARIABLE]) != BEFORE_TORCH[VARIABLE]
    if threads > 1 and library is not None and not chosen and _started.acquire(blocking=False):
        arguments = (Spinning(library), threads)
        threading.Thread(target=_watch, args=arguments, name="grpo-spinning", daemon=True).start()


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
        self._calm = 0

    def wanted(self, busy: float, own: float, seconds: float) -> bool | None:
        """Returns True where others want the processors, False where they did not for a while, else None.

        `busy`: seconds of all programs since the last look. `own`: those of this process. `seconds`: that passed.
        """
        taken = ((busy - own) / seconds - self._spare) / self._threads
        self._calm = self._calm + 1 if taken < FREE else 0
        return True if taken > WANTED else False if self._calm >= CALM else None


def _watch(spinning: Spinning, threads: int) -> None:
    processors = os.sched_getaffinity(0)
    rule, before = Rule(threads, len(processors)), (busy_seconds(processors), time.process_time(), time.monotonic())
    while True:
        time.sleep(LOOK)
        now = busy_seconds(processors), time.process_time(), time.monotonic()
        wanted = rule.wanted(*(new - old for new, old in zip(now, before, strict=True)))
        before = now
        if wanted is not None:
            (spinning.turn_off if wanted else spinning.turn_on)()


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
