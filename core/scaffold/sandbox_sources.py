"""The Python files of a new sandbox package, as `string.Template`s: a working example to be rewritten.

The fields are those of `new_texts`.
"""

SANDBOX = '''\
"""The sandbox $name: programs run in another sandbox, and once more when that one fails.

In: jobs. Out: what happened to each. Put a machine of your own in the place of the inner sandbox: a remote worker, a
container engine, a virtual machine. Whatever fails there is the outcome "unavailable" and never a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo import Host, Job, JobResult, SandboxPool, SandboxSpec, hookimpl, sandbox

grpo_contract = $contract


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
def $name(*, inner: str = "local") -> SandboxPool:
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
    return [$name]
'''

SANDBOX_TEST = '''\
"""The sandbox reports what happens to programs as every sandbox does, and tries again what met trouble."""

from __future__ import annotations

import asyncio

from grpo import Host, Job, JobResult, check_sandbox

from $package import RetryingPool, $name


class Shaky:
    """A pool whose first answer is always trouble."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, jobs: list[Job]) -> list[JobResult]:
        self.calls += 1
        return [JobResult("unavailable" if self.calls == 1 else "exited", exit_code=0) for _ in jobs]

    def capabilities(self) -> dict[str, bool]:
        return {}

    def close(self) -> None:
        pass

    @classmethod
    def reap(cls) -> int:
        return 0


def test_it_keeps_what_a_sandbox_promises() -> None:
    report = check_sandbox($name, attacks=[])
    assert report.ok, str(report)


def test_trouble_is_tried_again_once() -> None:
    inner = Shaky()
    results = asyncio.run(RetryingPool(inner).run([Job("print(1)"), Job("print(2)")]))
    assert [result.outcome for result in results] == ["exited", "exited"]
    assert inner.calls == 2


def test_grpo_finds_it() -> None:
    assert Host.discover().sandbox("$distribution/$name@1").spec is $name
'''
