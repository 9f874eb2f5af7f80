"""The sandbox `spread`: programs go to whichever of several other sandboxes has the least to do.

In: the SPECs of the others. Out: a pool. A sandbox that is unavailable costs a try elsewhere, and the job is
unavailable only when every one is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

from grpo import Host, Job, JobResult, SandboxPool, SandboxSpec, hookimpl, sandbox

grpo_contract = 1


class SpreadPool:
    """Several pools as one."""

    def __init__(self, members: Sequence[SandboxPool]) -> None:
        self._members = list(members)
        self._busy = [0] * len(self._members)
        self._lock = threading.Lock()

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Runs jobs and returns their results in order."""
        return list(await asyncio.gather(*(self._run_one(job) for job in jobs)))

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what every member can do."""
        known = [member.capabilities() for member in self._members]
        return {name: all(one.get(name, False) for one in known) for name in known[0]}

    def close(self) -> None:
        """Closes every member."""
        for member in self._members:
            member.close()

    @classmethod
    def reap(cls) -> int:
        """Leaves nothing of its own behind; each member's own backend reaps what it made."""
        return 0

    async def _run_one(self, job: Job) -> JobResult:
        tried: set[int] = set()
        while True:
            with self._lock:
                waiting = [number for number in range(len(self._members)) if number not in tried]
                chosen = min(waiting, key=self._busy.__getitem__)
                self._busy[chosen] += 1
            try:
                [result] = await self._members[chosen].run([job])
            finally:
                with self._lock:
                    self._busy[chosen] -= 1
            tried.add(chosen)
            if result.outcome != "unavailable" or len(tried) == len(self._members):
                return result


@sandbox(version=1)
def spread(*, members: str = "local:slots=2+local:slots=2") -> SpreadPool:
    """Spreads programs over several sandboxes.

    Args:
        members: their SPECs, with + between them.

    Raises:
        UsageError: a SPEC names no sandbox.
        SandboxUnavailable: a member cannot run.
    """
    host = Host.discover()
    with ExitStack() as opened:
        pools = [opened.enter_context(closing(host.sandbox(spec).make())) for spec in members.split("+")]
        opened.pop_all()
    return SpreadPool(pools)


@hookimpl
def grpo_sandboxes() -> list[SandboxSpec]:
    """Returns the sandbox of this package."""
    return [spread]
