"""Turns signals into a request to stop after the current step; before the first step, or twice, they stop at once."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from grpo.core.processes.group import any_of, ending
from grpo.core.processes.rank import count, is_first

STOPPING = "\nstopping after this step, in a state that resumes; once more stops at once\n"
ECHO = 2.0  # seconds in which several processes are told of one signal more than once
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C; `kill`, a scheduler; a terminal that was closed

_elsewhere: dict[StopRequest, int] = {}  # who listens outside the main thread, and in which


class StopRequest:
    """Set by the first signal."""

    def __init__(self) -> None:
        self.asked = False
        self._finishing = False
        self._since = -math.inf  # when it was asked for
        self._over = False

    def asked_of_any(self) -> bool:
        """Returns whether any process was asked to stop; all processes must call it."""
        return any_of(self.asked, "the decision whether to stop")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Catches the signals while the block runs; outside the main thread, the calls of `ask_all`."""
        if threading.current_thread() is not threading.main_thread():
            _elsewhere[self] = threading.get_ident()
            try:
                yield
            finally:
                del _elsewhere[self]
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        if before[signal.SIGHUP] == signal.SIG_IGN:  # started by nohup: it is to go on
            del before[signal.SIGHUP]
        for number in before:
            signal.signal(number, self._catch)
        try:
            yield
        finally:
            # A launcher ends what is left as soon as the first process leaves: these are about to.
            over = count() > 1 and (self.asked or ending())
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if over else handler)

    @contextmanager
    def finishing_steps(self) -> Iterator[None]:
        """Lets the current step end when the first signal arrives while the block runs."""
        self._finishing = True
        try:
            yield
        finally:
            self._finishing = False

    def over(self) -> None:
        """Notes that the run is recorded; a stop has no effect any more."""
        self._over = True

    def ask(self) -> bool:
        """Asks for a stop; returns whether it is to be at once: nothing to finish, or asked before."""
        again, self.asked, self._since = self.asked, True, time.monotonic()
        return again or not self._finishing

    def _catch(self, number: int, frame: FrameType | None) -> None:
        # A terminal tells all processes, and so does the launcher that it told.
        echo = count() > 1 and time.monotonic() - self._since < ECHO
        if self._over or ending() or echo:
            return
        if self.ask():
            raise KeyboardInterrupt
        if not is_first():
            return
        with suppress(OSError):  # the terminal may be what was closed
            os.write(2, STOPPING.encode())  # not by print, which the signal may have interrupted


def ask_all() -> None:
    """Asks the listeners outside the main thread for a stop, as a signal would."""
    for request, thread in list(_elsewhere.items()):
        if request.ask():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))
