"""Keeps an environment that calls `os._exit` in a thread of a run from ending the run without a word.

It stands here, not beside its caller in core/env, since an error raised in this package names the plugin's line.
"""

from __future__ import annotations

import os
import threading
from typing import NoReturn

_end_process = os._exit
_home = 0  # the process whose threads are guarded; its forks may end
_guarded = threading.local()


def raise_on_exit() -> None:
    """Makes `os._exit` raise SystemExit in this thread; where a plugin's own thread calls it, it says so and ends."""
    global _home
    _home, _guarded.here = os.getpid(), True
    os._exit = _exit


def _exit(status: int) -> NoReturn:
    thread = threading.current_thread()
    if os.getpid() == _home and getattr(_guarded, "here", False):
        raise SystemExit(f"it called os._exit({status})")
    if os.getpid() == _home and thread is not threading.main_thread() and not thread.name.startswith("grpo-"):
        message = f"grpo: the thread {thread.name} of a plugin called os._exit({status}), which ends this process. "
        message += "An environment that does so can have its own: --env-processes 1\n"
        os.write(2, message.encode(errors="replace"))
    _end_process(status)
