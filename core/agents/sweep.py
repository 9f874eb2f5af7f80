"""Ends the processes of an agent whose supervisor was killed: they are found by the key in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from grpo.core.agents.kernel import LINUX

_GIVE_UP = 10.0


def end_by_key(key: str) -> None:
    """Kills every process whose environment has the key of an episode, until there is none."""
    deadline = time.monotonic() + _GIVE_UP
    while LINUX and (left := _with_key(key.encode())) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _with_key(key: bytes) -> list[int]:
    """Returns the ids of this user's processes that have an episode's key in their environment."""
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and folder.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                if b"=" + key + b"\0" in (folder / "environ").read_bytes():
                    pids.append(int(folder.name))
    return pids
