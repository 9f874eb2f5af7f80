"""Async rewards: their loop, time limits, and coroutines that never await."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from patience import PATIENCE, Clock

from grpo import Completion, reward
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.errors import TransientError


def bound(function: Callable[..., Any], timeout: float = PATIENCE, **metadata: Any) -> BoundReward:
    spec = reward(version=1, **metadata)(function)
    return BoundReward(spec, "their-dist", timeout=timeout)


def completions(*texts: str) -> list[Completion]:
    return [Completion(text) for text in texts]


async def polite(completion: str) -> float:
    await asyncio.sleep(0.1)
    return 1.0


def test_async_calls_overlap() -> None:
    begun: list[str] = []

    async def meets(completion: str) -> float:
        """Ends when all have begun."""
        begun.append(completion)
        while len(begun) < 100:
            await asyncio.sleep(0.01)
        return 1.0

    with Scorer([bound(meets)]) as scorer:
        outcomes = scorer.score(completions(*["a"] * 100))["meets"]
    assert [outcome.score for outcome in outcomes] == [1.0] * 100


@pytest.mark.core
def test_a_hang_a_refused_cancellation_and_an_exit_cost_one_completion_each(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, "grpo.core.scoring.loop", "asyncio.base_events")
    done: list[str] = []

    async def moody(completion: str) -> float:
        if completion == "hang":
            while len(done) < 4:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_soon(clock.forward)  # between calls: none is seen to hold the loop
            await asyncio.sleep(2 * PATIENCE)
        if completion == "stubborn":
            try:
                await asyncio.sleep(2 * PATIENCE)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
                return 1.0
        await asyncio.sleep(0.01)
        done.append(completion)
        if completion == "exit":
            sys.exit(3)
        return 1.0

    with Scorer([bound(moody)]) as scorer:
        outcomes = scorer.score(completions("a", "hang", "b", "stubborn", "exit", "c"))["moody"]
        assert [o.kind for o in outcomes] == ["score", "failure", "score", "failure", "failure", "score"]
        assert "time limit of 60 s and was cancelled" in (outcomes[1].reason or "")
        assert "SystemExit: 3" in (outcomes[4].reason or "")
        assert scorer.score(completions("a"))["moody"][0].score == 1.0


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
def test_a_coroutine_that_never_awaits_fails_alone_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, "grpo.core.scoring.loop")
    release, ended = threading.Event(), threading.Event()

    async def rude(completion: str) -> float:
        if completion == "block":
            clock.looked_at(2)  # now the call is known to hold the loop
            clock.forward()
            release.wait(PATIENCE)
            ended.set()
        await asyncio.sleep(0.01)
        return 1.0

    with Scorer([bound(rude), bound(polite)]) as scorer:
        outcomes = scorer.score(completions("a", "block", "b", "c"))
        assert not ended.is_set(), "what blocks is not waited for"
        assert [o.kind for o in outcomes["rude"]] == ["score", "failure", "score", "score"]
        assert [o.kind for o in outcomes["polite"]] == ["score"] * 4
        assert "blocked the event loop" in (outcomes["rude"][1].reason or "")
        assert "in rude" in scorer.first_failure["rude"]
    release.set()


@pytest.mark.slow
def test_async_rewards_are_not_held_up_by_a_rewards_that_computes() -> None:
    answered = threading.Event()

    def compute(completion: str) -> float:
        """Computes until the other one has answered."""
        deadline = time.monotonic() + PATIENCE
        while not answered.is_set() and time.monotonic() < deadline:
            pass
        return float(answered.is_set())

    async def quick(completion: str) -> float:
        await asyncio.sleep(0.1)
        answered.set()
        return 1.0

    with Scorer([bound(compute, isolation="inline"), bound(quick, timeout=2 * PATIENCE)]) as scorer:
        outcomes = scorer.score(completions("a"))
    assert outcomes["quick"][0].score == 1.0
    assert outcomes["compute"][0].score == 1.0, "it ended before the other one"


@pytest.mark.core
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
