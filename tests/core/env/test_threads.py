"""Environments side by side: concurrently, each in its thread, and one that hangs or raises harms no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from patience import PATIENCE, Clock

from grpo.core.env.threads import EnvThreads, Raised


class Slow:
    """Remembers the threads it was used in."""

    made = 0
    closed = 0

    def __init__(self) -> None:
        Slow.made += 1
        self.threads = {threading.get_ident()}

    def work(self) -> set[int]:
        self.threads.add(threading.get_ident())
        return self.threads

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        assert len(self.threads) == 1
        Slow.closed += 1


class Hang:
    """A call that hangs, and one beside it that answers when that one's time is up.

    Args:
        clock: of the time limits.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.begun, self.release, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.thread = threading.current_thread()

    def hangs(self, env: Any) -> str:
        self.thread = threading.current_thread()
        self.begun.set()
        self.release.wait(PATIENCE)
        self.ended.set()
        return "late"

    def answers(self, env: Any) -> Any:
        assert self.begun.wait(PATIENCE)
        self.clock.forward()
        return env.work()


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    made = Hang(Clock(monkeypatch, "grpo.core.env.threads"))
    yield made
    made.release.set()


def works(env: Any) -> Any:
    return env.work()


def test_slow_calls_run_at_the_same_time_each_environment_in_one_thread() -> None:
    Slow.made = Slow.closed = 0
    together = threading.Barrier(32, timeout=PATIENCE)

    def meets(env: Any) -> Any:
        together.wait()
        return env.work()

    with EnvThreads(Slow, seconds=2 * PATIENCE) as threads:
        for _ in range(2):
            results = threads.call(dict.fromkeys(range(32), meets))
    assert all(len(threads_of_one) == 1 for threads_of_one in results.values())
    assert len({next(iter(threads_of_one)) for threads_of_one in results.values()}) == 32
    assert (Slow.made, Slow.closed) == (32, 32)


@pytest.mark.core
def test_what_raises_hangs_or_exits_is_a_failure_of_its_own(hang: Hang) -> None:
    def exits(env: Any) -> None:
        raise SystemExit(3)

    with EnvThreads(Slow, seconds=PATIENCE) as threads:
        results = threads.call({0: works, 2: lambda env: 1 // 0, 3: exits}) | threads.call(
            {0: hang.answers, 1: hang.hangs}
        )
        assert not hang.ended.is_set(), "what hangs is not waited for"
        assert isinstance(results[0], set)
        assert [type(results[number].error).__name__ for number in (1, 2, 3)] == [
            "TimeoutError",
            "ZeroDivisionError",
            "SystemExit",
        ]
        lines = [bool(re.fullmatch(r"env/test_threads\.py:\d+", results[number].line)) for number in (1, 2, 3)]
        assert lines == [False, True, True], "what raised in the environment names its line"
        assert results[2].explained() == f"ZeroDivisionError: {results[2].error} (at {results[2].line})"
        again = threads.call({0: works})
    assert isinstance(again[0], set)


def test_a_call_that_hangs_is_a_failure_and_the_others_have_their_results(hang: Hang) -> None:
    with EnvThreads(Slow, seconds=PATIENCE) as threads:
        results = threads.call({0: hang.hangs, 1: hang.answers})
    assert isinstance(results[0], Raised)
    assert isinstance(results[0].error, TimeoutError)
    assert isinstance(results[1], set)


@pytest.mark.core
def test_a_late_answer_is_not_taken_for_a_later_one(hang: Hang) -> None:
    with EnvThreads(Slow, seconds=PATIENCE) as threads:
        first = threads.call({0: hang.hangs, 1: hang.answers})
        assert isinstance(first[0], Raised)
        assert isinstance(first[1], set)
        hang.release.set()
        hang.thread.join(PATIENCE)
        assert not hang.thread.is_alive(), "it has answered"
        assert threads.call({1: lambda env: "next"}) == {1: "next"}


def test_an_environment_that_cannot_be_made_is_a_failure() -> None:
    def broken() -> Any:
        raise OSError("no such game")

    with EnvThreads(broken, seconds=PATIENCE) as threads:
        results = threads.call({0: lambda env: env})
    assert "no such game" in str(results[0].error)


def test_one_that_cannot_be_closed_is_a_warning() -> None:
    class Stuck(Slow):
        def close(self) -> None:
            raise OSError("the server is away")

    with (
        pytest.warns(RuntimeWarning, match="OSError: the server is away"),
        EnvThreads(Stuck, seconds=PATIENCE) as threads,
    ):
        assert threads.call({0: lambda env: "fine"}) == {0: "fine"}


def test_environments_that_take_long_to_close_are_left_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    class Stuck(Slow):
        def close(self) -> None:
            released.wait(PATIENCE)

    monkeypatch.setattr("grpo.core.env.threads.CLOSING", 0.01)
    with (
        pytest.warns(RuntimeWarning, match="take over 0.01 s to close"),
        EnvThreads(Stuck, seconds=PATIENCE) as threads,
    ):
        threads.call({0: lambda env: "fine"})
    released.set()


@pytest.mark.slow
def test_environments_that_answered_have_closed_at_the_end_and_one_that_hangs_is_not_waited_for(
    hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server(Slow):
        open = 0

        def __init__(self) -> None:
            super().__init__()
            Server.open += 1

        def close(self) -> None:
            time.sleep(0.3)
            Server.open -= 1

    monkeypatch.setattr("grpo.core.env.threads.CLOSING", PATIENCE)
    with EnvThreads(Server, seconds=PATIENCE) as threads:
        threads.call(dict.fromkeys(range(2, 9), works))
        results = threads.call({0: hang.hangs, 1: hang.answers})
    assert isinstance(results[0], Raised)
    assert Server.open == 1, "a server with room for one batch has room for the next"
    assert not hang.ended.is_set()


@pytest.mark.core
def test_an_environment_that_ends_the_process_ends_its_own_rollout_alone() -> None:
    class Ends(Slow):
        def close(self) -> None:
            os._exit(9)

    def ends(env: Any) -> None:
        os._exit(7)

    def forks(env: Any) -> int:
        if not (child := os.fork()):
            os._exit(5)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with pytest.warns(RuntimeWarning, match=r"os\._exit\(9\)"), EnvThreads(Ends, seconds=PATIENCE) as threads:
        results = threads.call({0: works, 1: ends, 2: forks})
    assert isinstance(results[0], set)
    assert results[1].explained().startswith("SystemExit: it called os._exit(7) (at env/test_threads.py:")
    assert results[2] == 5, "a fork of the environment may end"


def test_an_environment_whose_own_thread_ends_the_process_is_told_of() -> None:
    code = (
        "import os, threading\nfrom grpo.core.env.threads import EnvThreads\n"
        "def ends(env):\n    thread = threading.Thread(target=lambda: os._exit(5), name='theirs')\n"
        "    thread.start()\n    thread.join()\n"
        "with EnvThreads(dict, seconds=60) as threads:\n    threads.call({0: ends})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 5
    assert "the thread theirs of a plugin called os._exit(5), which ends this process" in done.stderr
    assert "--env-processes 1" in done.stderr
