"""Keeps one pool of sessions for each SPEC and process, shared by every environment that asks for it."""

from __future__ import annotations

import atexit
import os
import threading

from grpo.plugins.host import Host
from grpo.plugins.session import SessionPool

_lock = threading.Lock()
_pools: dict[tuple[int, str], SessionPool] = {}


def sessions_of(spec: str = "local") -> SessionPool:
    """Returns this process's pool for a SPEC.

    Raises:
        UsageError: the SPEC names no session or sets an option that it does not have.
        SandboxUnavailable: this machine cannot run it; the message says what is missing and what to do.
    """
    key = (os.getpid(), spec)
    with _lock:
        if key not in _pools:
            _pools[key] = Host.discover().session(spec).make()
        return _pools[key]


def close_sessions() -> None:
    """Closes the pools of this process; the next call of `sessions_of` makes new ones."""
    with _lock:
        mine = [key for key in _pools if key[0] == os.getpid()]
        pools = [_pools.pop(key) for key in mine]
    for pool in pools:
        pool.close()


atexit.register(close_sessions)
