"""The sandbox reports what happens to programs as every sandbox does, and tries again what met trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from grpo_sandbox_second_try import RetryingPool, second_try

from grpo import Host, Job, JobResult, check_sandbox


class Shaky:
    """A pool whose first answer is always trouble."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
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
    report = check_sandbox(second_try, attacks=[])
    assert report.ok, str(report)


def test_trouble_is_tried_again_once() -> None:
    inner = Shaky()
    results = asyncio.run(RetryingPool(inner).run([Job("print(1)"), Job("print(2)")]))
    assert [result.outcome for result in results] == ["exited", "exited"]
    assert inner.calls == 2


def test_grpo_finds_it() -> None:
    assert Host.discover().sandbox("grpo-sandbox-second-try/second_try").spec is second_try
