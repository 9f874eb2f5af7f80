"""Lets idle OpenMP threads spin while the processors are free, and sleep at once while others want them.

A thread that spins for 0.03 ms gets most of its work without being woken, and steps are a third faster. Beside other
programs it takes from them, and from the threads that it waits for, the time that they need: steps take up to 2.7 times
as long. Nobody knows beforehand which it will be, and GOMP_SPINCOUNT is read once.

Theory of operation. libgomp spins GOMP_SPINCOUNT times only if it manages no more threads than there are processors,
and otherwise, where OMP_WAIT_POLICY is passive, not at all. It looks at both numbers whenever a thread waits. So a
thread of ours that has an idle team of its own, of more threads than processors, turns spinning off for all, and on
again when it ends. Whether others want the processors is told by Linux: how long the threads of this process were
ready to run and waited for a processor, as a share of that and the time that they ran.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from grpo.core.processes.memory import BEFORE_TORCH

VARIABLE = "GOMP_SPINCOUNT"
LOOK = 0.5  # seconds from one look at the threads to the next
WANTED = 0.04  # the share of waiting from which on others want the processors: alone it is below 0.01
FREE = 0.015
LEAST = 20_000_000  # nanoseconds that are enough to judge by
CALM = 10  # looks in a row that find the processors free before threads spin again: programs that pause come back
Times = dict[int, tuple[int, int]]  # nanoseconds that a thread ran, and waited for a processor
_TASKS = Path("/proc/self/task")
_started = threading.Lock()  # for good, by the one watch of this process


def watch_processors() -> None:
    """Starts the watch of this process, once.

    It does nothing where OpenMP is not libgomp, the threads of this process are not counted (Linux does), or somebody
    chose GOMP_SPINCOUNT.
    """
    library = _libgomp()
    chosen = os.environ.get(VARIABLE, BEFORE_TORCH[VARIABLE]) != BEFORE_TORCH[VARIABLE]
    if library is not None and not chosen and _times() and _started.acquire(blocking=False):
        threading.Thread(target=_watch, args=(Spinning(library),), name="grpo-spinning", daemon=True).start()


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
        """Has threads sleep as soon as they wait."""
        if self._over is None:
            self._over, begun = threading.Event(), threading.Event()
            arguments = (self._over, begun)
            threading.Thread(target=self._hold_team, args=arguments, name="grpo-team", daemon=True).start()
            begun.wait()

    def turn_on(self) -> None:
        """Has threads spin GOMP_SPINCOUNT times before they sleep."""
        if self._over is not None:
            self._over.set()
            self._over = None

    def _hold_team(self, over: threading.Event, begun: threading.Event) -> None:
        self._parallel(self._nothing, None, (os.cpu_count() or 1) + 1, 0)
        begun.set()
        over.wait()  # the team ends with this thread


class Rule:
    """Decides from what the threads ran and waited whether others want the processors."""

    def __init__(self) -> None:
        self._before: Times = {}
        self._calm = 0

    def wanted(self, now: Times) -> bool | None:
        """Returns True where others want the processors, False where they did not for a while, else None.

        Args:
            now: of the threads that live; what they did before the first look counts in it.
        """
        waited = sum(waited - self._before.get(task, (0, 0))[1] for task, (_, waited) in now.items())
        ran = sum(ran - self._before.get(task, (0, 0))[0] for task, (ran, _) in now.items())
        self._before = now
        if waited + ran < LEAST:
            return None
        share = waited / (waited + ran)
        self._calm = self._calm + 1 if share < FREE else 0
        return True if share > WANTED else False if self._calm >= CALM else None


def _watch(spinning: Spinning) -> None:
    """Turns spinning off and on for as long as the process lives; at first by how it waited while it loaded."""
    rule = Rule()
    while now := _times():
        wanted = rule.wanted(now)
        if wanted is not None:
            (spinning.turn_off if wanted else spinning.turn_on)()
        time.sleep(LOOK)


def _times() -> Times:
    """Returns how long each thread of this process ran and waited for a processor; nothing where that is not known."""
    times: Times = {}
    try:
        for task in _TASKS.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                ran, waited, _ = map(int, (task / "schedstat").read_bytes().split())
                times[int(task.name)] = ran, waited
    except (OSError, ValueError):
        return {}
    return times if any(ran for ran, _ in times.values()) else {}


def _libgomp() -> ctypes.CDLL | None:
    """Returns the libgomp that is loaded in this process, or None."""
    if not sys.platform.startswith("linux"):
        return None
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/libgomp" in line}
    return ctypes.CDLL(paths.pop()) if len(paths) == 1 else None
