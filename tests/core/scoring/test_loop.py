"""Async rewards: their loop, time limits, and coroutines that never await."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from grpo import Completion, reward
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._binding import BoundReward
from grpo.plugins.errors import TransientError


def bound(function: Callable[..., Any], timeout: float = 10.0, **metadata: Any) -> BoundReward:
    spec = reward(version=1, **metadata)(function)
    return BoundReward(spec, "their-dist", timeout=timeout)


def completions(*texts: str) -> list[Completion]:
    return [Completion(text) for text in texts]


async def polite(completion: str) -> float:
    if completion == "exit":
        sys.exit(3)
    if completion == "hang":
        await asyncio.sleep(60)
    if completion == "stubborn":
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
                return 1.0
    await asyncio.sleep(0.1)
    return 1.0


def test_async_calls_overlap() -> None:
    with Scorer([bound(polite)]) as scorer:
        started = time.monotonic()
        outcomes = scorer.score(completions(*["a"] * 100))["polite"]
        assert time.monotonic() - started < 3
    assert [outcome.score for outcome in outcomes] == [1.0] * 100


@pytest.mark.slow
def test_a_hang_a_refused_cancellation_and_an_exit_cost_one_completion_each() -> None:
    with Scorer([bound(polite, timeout=0.5)]) as scorer:
        outcomes = scorer.score(completions("a", "hang", "b", "stubborn", "exit", "c"))["polite"]
        assert [o.kind for o in outcomes] == ["score", "failure", "score", "failure", "failure", "score"]
        assert "time limit of 0.5 s and was cancelled" in (outcomes[1].reason or "")
        assert "SystemExit: 3" in (outcomes[4].reason or "")
        assert scorer.score(completions("a"))["polite"][0].score == 1.0


def test_a_call_past_its_limit_is_cancelled_and_does_not_run_on() -> None:
    cancelled = threading.Event()

    async def hang(completion: str) -> float:
        try:
            await asyncio.sleep(120)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 1.0

    with Scorer([bound(hang, timeout=0.1)]) as scorer:
        assert scorer.score(completions("a"))["hang"][0].kind == "failure"
        assert cancelled.wait(60), "before the scorer ends what is left on its loop"


@pytest.mark.slow
def test_a_coroutine_that_never_awaits_fails_alone_and_the_others_go_on() -> None:
    release = threading.Event()

    async def rude(completion: str) -> float:
        if completion == "block":
            release.wait(20)
        await asyncio.sleep(0.01)
        return 1.0

    with Scorer([bound(rude, timeout=0.5), bound(polite, timeout=5)]) as scorer:
        started = time.monotonic()
        outcomes = scorer.score(completions("a", "block", "b", "c"))
        assert time.monotonic() - started < 6
        assert [o.kind for o in outcomes["rude"]] == ["score", "failure", "score", "score"]
        assert [o.kind for o in outcomes["polite"]] == ["score"] * 4
        assert "blocked the event loop" in (outcomes["rude"][1].reason or "")
        assert "in rude" in scorer.first_failure["rude"]
    release.set()


@pytest.mark.slow
def test_async_rewards_are_not_held_up_by_a_rewards_that_computes() -> None:
    def compute(completion: str) -> float:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        return 1.0

    with Scorer([bound(compute, isolation="inline"), bound(polite, timeout=0.8)]) as scorer:
        outcomes = scorer.score(completions("a"))
    assert outcomes["polite"][0].kind == "score"


@pytest.mark.slow
def test_async_transient_trouble_is_retried_and_batches_are_one_call() -> None:
    calls: list[int] = []

    async def flaky(completions: list[str]) -> list[float]:
        calls.append(len(completions))
        if len(calls) == 1:
            raise TransientError("busy")
        return [1.0] * len(completions)

    with Scorer([bound(flaky, batch=True)]) as scorer:
        outcomes = scorer.score(completions("a", "b"))["flaky"]
    assert [outcome.score for outcome in outcomes] == [1.0, 1.0]
    assert calls == [2, 2]


def test_async_rewards_are_scored_inside_a_running_loop() -> None:
    with Scorer([bound(polite)]) as scorer:

        async def inside() -> float | None:
            return scorer.score(completions("a"))["polite"][0].score

        assert asyncio.run(inside()) == 1.0
