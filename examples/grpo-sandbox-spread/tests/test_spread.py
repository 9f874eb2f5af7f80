"""The pool keeps what a sandbox promises, and a member that is away costs nothing but a try."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from grpo_sandbox_spread import SpreadPool, spread

from grpo import Host, Job, JobResult, UsageError, check_sandbox


class Away:
    """A pool whose machine is gone."""

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        return [JobResult("unavailable", reason="gone") for _ in jobs]

    def capabilities(self) -> dict[str, bool]:
        return {"peer": True}

    def close(self) -> None:
        pass

    @classmethod
    def reap(cls) -> int:
        return 0


def test_it_keeps_what_a_sandbox_promises() -> None:
    check_sandbox(spread, attacks=[]).require()


def test_a_member_that_is_away_costs_a_try() -> None:
    local = Host.discover().sandbox("local:slots=2").make()
    pool = SpreadPool([Away(), local])
    try:
        results = asyncio.run(pool.run([Job(f"print({number})") for number in range(6)]))
    finally:
        pool.close()
    assert [result.stdout for result in results] == [b"%d\n" % number for number in range(6)]
    [alone] = asyncio.run(SpreadPool([Away()]).run([Job("print(1)")]))
    assert (alone.outcome, alone.reason) == ("unavailable", "gone")


def test_the_host_finds_it_and_a_wrong_member_is_named() -> None:
    assert Host.discover().sandbox("grpo-sandbox-spread/spread").distribution == "grpo-sandbox-spread"
    with pytest.raises(UsageError, match="no sandbox 'lokal'"):
        spread(members="local:slots=2+lokal")
