"""Keeps an environment that calls `os._exit` in a thread of a run from ending the run without a word."""

from __future__ import annotations

import os
import threading
from typing import NoReturn

_end_process = os._exit
_guarded = threading.local()  # `pid`: the process in which this thread is guarded


def raise_on_exit() -> None:
    """Makes `os._exit` raise SystemExit in this thread from now on, but not in its forks."""
    _guarded.pid = os.getpid()
    os._exit = _exit


def _exit(status: int) -> NoReturn:
    if getattr(_guarded, "pid", None) == os.getpid():
        raise SystemExit(f"it called os._exit({status})")
    _end_process(status)
