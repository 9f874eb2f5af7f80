"""Rewards in threads: time limits, abandoned threads, and trouble off the main thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo import Completion, reward
from grpo.core.scoring.call import Caller
from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.core.scoring.task import Task
from grpo.core.scoring.threads import ThreadExecutor
from grpo.plugins._binding import BoundReward


def bound(function: Callable[..., Any], timeout: float = 10.0, **metadata: Any) -> BoundReward:
    spec = reward(version=1, name="mine", isolation="thread", **metadata)(function)
    return BoundReward(spec, "their-dist", timeout=timeout)


def scores(function: Callable[..., Any], texts: list[str], **keywords: Any) -> list[Outcome]:
    with Scorer([bound(function, **keywords)], workers=1) as scorer:
        return scorer.score([Completion(text) for text in texts])["mine"]


def test_calls_run_side_by_side_and_off_the_main_thread() -> None:
    together = threading.Barrier(4, timeout=5)

    def meet(completion: str) -> float:
        together.wait()
        return float(threading.current_thread() is not threading.main_thread())

    assert [outcome.score for outcome in scores(meet, ["a", "b", "c", "d"])] == [1.0] * 4


@pytest.mark.slow
def test_a_call_past_its_limit_fails_and_the_others_are_scored() -> None:
    release = threading.Event()

    def slow(completion: str) -> float:
        if completion == "stuck":
            release.wait(20)
        return 1.0

    started = time.monotonic()
    outcomes = scores(slow, ["stuck", "stuck", "stuck", "stuck", "stuck", *"abcdef"], timeout=0.3)
    assert time.monotonic() - started < 5
    release.set()
    assert [outcome.kind for outcome in outcomes] == ["failure"] * 5 + ["score"] * 6
    assert "longer than its time limit of 0.3 s" in (outcomes[0].reason or "")


def test_the_first_failure_shows_where_the_thread_is_stuck() -> None:
    release = threading.Event()

    def stuck_here(completion: str) -> float:
        release.wait(20)
        return 1.0

    with Scorer([bound(stuck_here, timeout=0.2)]) as scorer:
        scorer.score([Completion("a")])
        assert "in stuck_here" in scorer.first_failure["mine"]
    release.set()


@pytest.mark.slow
def test_a_call_that_ends_late_changes_nothing() -> None:
    def late(completion: str) -> float:
        time.sleep(0.4)
        return 1.0

    with Scorer([bound(late, timeout=0.1)]) as scorer:
        outcomes = scorer.score([Completion("a")])["mine"]
        time.sleep(0.5)
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

    def hang(completion: str) -> float:
        release.wait(30)
        return 1.0

    started = time.monotonic()
    outcomes = scores(hang, ["a"] * 500, timeout=0.05)
    release.set()
    assert time.monotonic() - started < 10
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


def test_a_batch_reward_runs_in_one_thread_with_one_limit() -> None:
    def batch(completions: list[str]) -> list[float]:
        time.sleep(2.0 if completions[0] == "slow" else 0.0)
        return [1.0] * len(completions)

    with Scorer([bound(batch, timeout=0.3, batch=True)]) as scorer:
        assert [o.score for o in scorer.score([Completion("a"), Completion("b")])["mine"]] == [1.0, 1.0]
        slow = scorer.score([Completion("slow"), Completion("b")])["mine"]
    assert [outcome.kind for outcome in slow] == ["failure", "failure"]


@pytest.mark.slow
def test_what_a_call_imports_first_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_in_a_thread.py").write_text("import time\ntime.sleep(1.2)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def lazy(completion: str) -> float:
        import slow_in_a_thread  # type: ignore[import-not-found]

        if completion == "hang":
            time.sleep(3)
        return float(bool(slow_in_a_thread))

    first, last = scores(lazy, ["a", "hang"], timeout=0.6)
    assert first.score == 1.0
    assert "longer than its time limit of 0.6 s" in str(last.reason)
