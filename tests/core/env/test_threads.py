"""Environments side by side: concurrently, each in its thread, and one that hangs or raises harms no other."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from grpo.core.env.threads import EnvThreads, Raised


class Slow:
    """Remembers the threads it was used in."""

    made = 0
    closed = 0

    def __init__(self) -> None:
        Slow.made += 1
        self.threads = {threading.get_ident()}

    def work(self, seconds: float) -> set[int]:
        time.sleep(seconds)
        self.threads.add(threading.get_ident())
        return self.threads

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        assert len(self.threads) == 1
        Slow.closed += 1


def sleeping(seconds: float) -> Any:
    return lambda env: env.work(seconds)


def test_slow_calls_run_at_the_same_time_each_environment_in_one_thread() -> None:
    Slow.made = Slow.closed = 0
    with EnvThreads(Slow, seconds=10.0) as threads:
        start = time.monotonic()
        for _ in range(2):
            found = threads.call({number: sleeping(0.2) for number in range(32)})
        assert time.monotonic() - start < 5.0, "one after the other it takes 12.8 s"
    assert all(len(seen) == 1 for seen in found.values())
    assert len({next(iter(seen)) for seen in found.values()}) == 32
    assert (Slow.made, Slow.closed) == (32, 32)


@pytest.mark.slow
def test_what_raises_hangs_or_exits_is_a_failure_of_its_own() -> None:
    def exits(env: Any) -> None:
        raise SystemExit(3)

    with EnvThreads(Slow, seconds=0.5) as threads:
        start = time.monotonic()
        found = threads.call({0: sleeping(0.0), 1: sleeping(30.0), 2: lambda env: 1 // 0, 3: exits})
        assert time.monotonic() - start < 5.0
        assert isinstance(found[0], set)
        assert [type(found[number].error).__name__ for number in (1, 2, 3)] == [
            "TimeoutError",
            "ZeroDivisionError",
            "SystemExit",
        ]
        again = threads.call({0: sleeping(0.0)})
    assert isinstance(again[0], set)


def test_a_call_that_hangs_is_a_failure_and_the_others_have_their_results() -> None:
    go = threading.Event()
    with EnvThreads(Slow, seconds=0.2) as threads:
        found = threads.call({0: lambda env: go.wait(60), 1: lambda env: "in time"})
    go.set()
    assert isinstance(found[0], Raised)
    assert isinstance(found[0].error, TimeoutError)
    assert found[1] == "in time"


@pytest.mark.slow
def test_a_late_answer_is_not_taken_for_a_later_one() -> None:
    with EnvThreads(Slow, seconds=0.2, at_once=1) as threads:
        first = threads.call({0: lambda env: (time.sleep(0.4), "late")[1], 1: lambda env: "in time"})
        assert isinstance(first[0], Raised)
        assert first[1] == "in time"
        time.sleep(0.4)
        assert threads.call({1: lambda env: "next"}) == {1: "next"}


def test_an_environment_that_cannot_be_made_is_a_failure() -> None:
    def broken() -> Any:
        raise OSError("no such game")

    with EnvThreads(broken, seconds=1.0) as threads:
        found = threads.call({0: lambda env: env})
    assert "no such game" in str(found[0].error)


def test_one_that_cannot_be_closed_is_a_warning() -> None:
    class Stuck(Slow):
        def close(self) -> None:
            raise OSError("the server is away")

    with (
        pytest.warns(RuntimeWarning, match="OSError: the server is away"),
        EnvThreads(Stuck, seconds=5.0) as threads,
    ):
        assert threads.call({0: lambda env: "fine"}) == {0: "fine"}


@pytest.mark.slow
def test_environments_that_answered_have_closed_at_the_end_and_one_that_hangs_is_not_waited_for() -> None:
    class Server(Slow):
        open = 0

        def __init__(self) -> None:
            super().__init__()
            Server.open += 1

        def close(self) -> None:
            time.sleep(0.3)
            Server.open -= 1

    start = time.monotonic()
    with EnvThreads(Server, seconds=0.5) as threads:
        found = threads.call({0: sleeping(30.0), **{number: sleeping(0.0) for number in range(1, 9)}})
    assert isinstance(found[0], Raised)
    assert Server.open == 1, "a server with room for one batch has room for the next"
    assert time.monotonic() - start < 5.0
