"""Rewards in threads: time limits, abandoned threads, and trouble off the main thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from patience import PATIENCE, Clock

from grpo import Completion, reward
from grpo.core.scoring.call import Caller
from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.core.scoring.task import Task
from grpo.core.scoring.threads import ThreadExecutor
from grpo.plugins._spec.binding import BoundReward


def bound(function: Callable[..., Any], timeout: float = PATIENCE, **metadata: Any) -> BoundReward:
    spec = reward(version=1, name="mine", isolation="thread", **metadata)(function)
    return BoundReward(spec, "their-dist", timeout=timeout)


def scores(function: Callable[..., Any], texts: list[str], **keywords: Any) -> list[Outcome]:
    with Scorer([bound(function, **keywords)], workers=1) as scorer:
        return scorer.score([Completion(text) for text in texts])["mine"]


def test_calls_run_side_by_side_and_off_the_main_thread() -> None:
    together = threading.Barrier(4, timeout=PATIENCE)

    def meet(completion: str) -> float:
        together.wait()
        return float(threading.current_thread() is not threading.main_thread())

    assert [outcome.score for outcome in scores(meet, ["a", "b", "c", "d"])] == [1.0] * 4


@pytest.mark.core
def test_calls_past_their_limit_fail_and_the_others_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """All four threads are stuck before one of the others can begin."""
    clock = Clock(monkeypatch, "grpo.core.scoring.threads")
    release, ended = threading.Event(), threading.Event()
    together = threading.Barrier(4, action=clock.forward, timeout=PATIENCE)

    def slow(completion: str) -> float:
        if completion == "stuck":
            together.wait()
            release.wait(PATIENCE)
            ended.set()
        return 1.0

    outcomes = scores(slow, ["stuck", "stuck", "stuck", "stuck", *"abcdef"])
    assert not ended.is_set(), "what is stuck is not waited for"
    release.set()
    assert [outcome.kind for outcome in outcomes] == ["failure"] * 4 + ["score"] * 6
    assert "longer than its time limit of 60 s" in (outcomes[0].reason or "")


def test_the_first_failure_shows_where_the_thread_is_stuck() -> None:
    release = threading.Event()

    def stuck_here(completion: str) -> float:
        release.wait(PATIENCE)
        return 1.0

    with Scorer([bound(stuck_here, timeout=0.2)]) as scorer:
        scorer.score([Completion("a")])
        assert "in stuck_here" in scorer.first_failure["mine"]
    release.set()


@pytest.mark.core
def test_a_call_that_ends_late_changes_nothing() -> None:
    release = threading.Event()
    threads: list[threading.Thread] = []

    def late(completion: str) -> float:
        threads.append(threading.current_thread())
        release.wait(PATIENCE)
        return 1.0

    with Scorer([bound(late, timeout=0.1)]) as scorer:
        outcomes = scorer.score([Completion("a")])["mine"]
        release.set()
        threads[0].join(PATIENCE)
        assert not threads[0].is_alive()
    assert outcomes[0].kind == "failure"


def test_a_call_that_ended_late_fails_also_where_nobody_looked_meanwhile() -> None:
    def late(completion: str) -> float:
        time.sleep(0.2)
        return 1.0

    caller = Caller(bound(late, timeout=0.05), retries=0, report=lambda text, error: None)
    executor, task = ThreadExecutor(1), Task(caller, [Completion("a")], [0])
    executor.submit(task)
    assert task.wait(60.0)
    executor.close()
    assert [outcome.kind for outcome in task.results()] == ["failure"]


@pytest.mark.slow
def test_a_reward_whose_calls_all_hang_is_given_up() -> None:
    release = threading.Event()
    calls: list[str] = []

    def hang(completion: str) -> float:
        calls.append(completion)
        release.wait(2 * PATIENCE)
        return 1.0

    outcomes = scores(hang, ["a"] * 500, timeout=0.05)
    release.set()
    assert len(calls) <= 32 + 4, "32 are enough, and as many as there are threads had begun meanwhile"
    assert {outcome.kind for outcome in outcomes} == {"failure"}
    assert "of its calls are stuck in threads" in (outcomes[-1].reason or "")


def test_exceptions_off_the_main_thread_are_failures() -> None:
    def crash(completion: str) -> float:
        if completion == "interrupt":
            raise KeyboardInterrupt
        sys.exit("bye")

    outcomes = scores(crash, ["interrupt", "exit"])
    assert [outcome.kind for outcome in outcomes] == ["failure", "failure"]
    assert "SystemExit: bye" in (outcomes[1].reason or "")


def test_a_batch_reward_runs_in_one_thread_with_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, "grpo.core.scoring.threads")
    release = threading.Event()

    def batch(completions: list[str]) -> list[float]:
        if completions[0] == "slow":
            clock.forward()
            release.wait(PATIENCE)
        return [1.0] * len(completions)

    with Scorer([bound(batch, batch=True)]) as scorer:
        assert [o.score for o in scorer.score([Completion("a"), Completion("b")])["mine"]] == [1.0, 1.0]
        slow = scorer.score([Completion("slow"), Completion("b")])["mine"]
        release.set()
    assert [outcome.kind for outcome in slow] == ["failure", "failure"]
