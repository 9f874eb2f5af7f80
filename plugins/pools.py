"""Keeps one pool of sandboxes and one of sessions for each SPEC and process, shared by all users."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from grpo.plugins._spec_pools import SpecPools
from grpo.plugins.host import Host
from grpo.plugins.sandbox_job import Job, JobResult, SandboxPool
from grpo.plugins.session import SessionPool

_sandboxes: SpecPools[SandboxPool] = SpecPools()
_sessions: SpecPools[SessionPool] = SpecPools()
close_pools, close_sessions = _sandboxes.close, _sessions.close


def pool_of(spec: str = "local") -> SandboxPool:
    """Returns this process's pool of sandboxes for a SPEC.

    Raises UsageError for an unknown sandbox or option; SandboxUnavailable, with what is missing and the remedy, if this
    machine cannot run it.
    """
    return _sandboxes.of(spec, lambda: Host.discover().sandbox(spec).make())


def sessions_of(spec: str = "local") -> SessionPool:
    """Returns this process's pool of sessions for a SPEC; raises what `pool_of` raises."""
    return _sessions.of(spec, lambda: Host.discover().session(spec).make())


def run_jobs(jobs: Sequence[Job], spec: str = "local") -> list[JobResult]:
    """Runs jobs in the pool of a SPEC and waits for them, also inside a running event loop; raises as `pool_of`."""
    pool = pool_of(spec)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run(pool, jobs))
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _run(pool, jobs)).result()


async def _run(pool: SandboxPool, jobs: Sequence[Job]) -> list[JobResult]:
    return await pool.run(jobs)
