"""Makes one pool for each SPEC and process, and closes them when the process ends."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from grpo.plugins.sandbox_job import SandboxPool
from grpo.plugins.session import SessionPool

Pool = TypeVar("Pool", SandboxPool, SessionPool)


class SpecPools(Generic[Pool]):
    """The pools of this process by SPEC; a forked process makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[tuple[int, str], Pool] = {}
        atexit.register(self.close)

    def of(self, spec: str, make: Callable[[], Pool]) -> Pool:
        """Returns the pool of a SPEC; `make` makes a missing one."""
        key = (os.getpid(), spec)
        with self._lock:
            if key not in self._pools:
                self._pools[key] = make()
            return self._pools[key]

    def close(self) -> None:
        """Closes the pools of this process; the next call of `of` makes new ones."""
        with self._lock:
            mine = [key for key in self._pools if key[0] == os.getpid()]
            pools = [self._pools.pop(key) for key in mine]
        for pool in pools:
            pool.close()
