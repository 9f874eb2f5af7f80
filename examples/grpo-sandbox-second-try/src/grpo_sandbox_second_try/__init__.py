"""Provides the sandbox second_try: programs run in another sandbox, and once more when that one fails.

Put a machine of your own in the place of the inner sandbox: a remote worker, a
container engine, a virtual machine. Whatever fails there is the outcome "unavailable" and never a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo import Host, Job, JobResult, SandboxPool, SandboxSpec, hookimpl, sandbox

grpo_contract = 1


class RetryingPool:
    """A pool that gives its jobs to another one, and those that met trouble a second time."""

    def __init__(self, inner: SandboxPool) -> None:
        self._inner = inner

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Runs jobs and returns their results in order."""
        results = list(await self._inner.run(jobs))
        again = [number for number, result in enumerate(results) if result.trouble]
        if again:
            for number, result in zip(again, await self._inner.run([jobs[n] for n in again]), strict=True):
                results[number] = result
        return results

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what the inner sandbox can do."""
        return self._inner.capabilities()

    def close(self) -> None:
        """Closes the inner sandbox."""
        self._inner.close()

    @classmethod
    def reap(cls) -> int:
        """Leaves nothing of its own behind; the inner sandbox reaps what it made."""
        return 0


@sandbox(version=1)
def second_try(*, inner: str = "local") -> SandboxPool:
    """Runs programs in another sandbox, and once more when that one fails.

    Args:
        inner: the SPEC of the other sandbox.

    Raises:
        UsageError: the SPEC names no sandbox.
        SandboxUnavailable: it cannot run here.
    """
    return RetryingPool(Host.discover().sandbox(inner).make())


@hookimpl
def grpo_sandboxes() -> list[SandboxSpec]:
    """Offers the sandbox to grpo."""
    return [second_try]
