"""Keeps one pool of sandboxes and one of sessions for each SPEC and process, shared by everybody who asks for it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from grpo.plugins.host import Host
from grpo.plugins.sandbox_job import Job, JobResult, SandboxPool
from grpo.plugins.session import SessionPool

Pool = TypeVar("Pool", SandboxPool, SessionPool)


class SpecPools(Generic[Pool]):
    """The pools of this process by SPEC; a forked process makes its own, and its end closes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[tuple[int, str], Pool] = {}
        atexit.register(self.close)

    def of(self, spec: str, make: Callable[[], Pool]) -> Pool:
        """Returns the pool of a SPEC, which `make` makes where there is none."""
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


_sandboxes: SpecPools[SandboxPool] = SpecPools()
_sessions: SpecPools[SessionPool] = SpecPools()
close_pools, close_sessions = _sandboxes.close, _sessions.close


def pool_of(spec: str = "local") -> SandboxPool:
    """Returns this process's pool of sandboxes for a SPEC.

    Raises:
        UsageError: the SPEC names no sandbox or sets an option that it does not have.
        SandboxUnavailable: this machine cannot run it; the message says what is missing and what to do.
    """
    return _sandboxes.of(spec, lambda: Host.discover().sandbox(spec).make())


def sessions_of(spec: str = "local") -> SessionPool:
    """Returns this process's pool of sessions for a SPEC; raises what `pool_of` raises."""
    return _sessions.of(spec, lambda: Host.discover().session(spec).make())


def run_jobs(jobs: Sequence[Job], spec: str = "local") -> list[JobResult]:
    """Runs jobs in the pool of a SPEC and waits for them, from plain code or from inside a running event loop.

    Raises:
        UsageError, SandboxUnavailable: see `pool_of`.
    """
    pool = pool_of(spec)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run(pool, jobs))
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _run(pool, jobs)).result()


async def _run(pool: SandboxPool, jobs: Sequence[Job]) -> list[JobResult]:
    return await pool.run(jobs)
