"""An environment in a process of its own: what it does there harms nobody here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gymnasium.error import ResetNeeded
from patience import PATIENCE, wait_for

from grpo.envs.isolated.remote import ForkServer, IsolatedEnv
from grpo.plugins.errors import DatasetError, PluginError

pytestmark = pytest.mark.slow

GAME = """
import ctypes, os, time
from gymnasium.error import ResetNeeded
from grpo.plugins.errors import DatasetError

loaded = os.getpid()


def make(greeting):
    if greeting == "none":
        raise KeyError(os.environ.get("NEEDED", "NEEDED"))
    return lambda: Game(greeting)


class Game:
    def __init__(self, greeting):
        self.greeting, self.kept, self.tools = greeting, [], []

    def say(self, what):
        self.kept.append(what)
        return [self.greeting, len(self.kept), os.getpid() != loaded]

    def do(self, what):
        if what == "secret":
            return sorted(name for name in os.environ if "KEY" in name)
        if what == "crash":
            ctypes.string_at(0)
        if what == "exit":
            os._exit(0)
        if what == "memory":
            return len(bytearray(10**10))
        if what == "hang":
            return 9**9**9
        if what == "reset":
            raise ResetNeeded("call reset()")
        if what == "row":
            raise DatasetError("no such row")
        if what == "own":
            raise type("Own", (Exception,), {"__str__": lambda self: 1 / 0})()
        raise SystemExit(what)
"""


@pytest.fixture
def fork_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "apart_game.py").write_text(GAME)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("GIVEN_KEY", "known")
    made = ForkServer("game", ("apart_game", "make"), {"greeting": "hello"}, ["GIVEN_KEY"], 2**30)
    yield made
    made.close()


@pytest.mark.core
def test_each_environment_has_a_process_and_a_state_of_its_own(fork_server: ForkServer) -> None:
    first, second = IsolatedEnv(fork_server, PATIENCE), IsolatedEnv(fork_server, PATIENCE)
    assert first.ask("say", "x") == ["hello", 1, True]
    assert first.ask("say", "x") == ["hello", 2, True]
    assert second.ask("say", "x") == ["hello", 1, True]
    assert first.ask("do", "secret") == ["GIVEN_KEY"]
    first.close()
    assert not first.running
    assert first.ask("say", "x") == ["hello", 1, True], "a new process"
    first.close()
    second.close()


@pytest.mark.core
@pytest.mark.parametrize("what", ["crash", "exit", "hang"])
def test_what_ends_a_process_ends_its_own_rollout_alone(fork_server: ForkServer, what: str) -> None:
    other, bad = IsolatedEnv(fork_server, PATIENCE), IsolatedEnv(fork_server, 1.0 if what == "hang" else 2 * PATIENCE)
    assert other.ask("say", "x")[1] == 1
    with pytest.raises(TimeoutError if what == "hang" else RuntimeError, match="game"):
        bad.ask("do", what)
    assert other.ask("say", "x")[1] == 2
    bad._seconds = PATIENCE
    assert bad.ask("say", "x")[1] == 1, "it has a new process"
    other.close()
    bad.close()


def test_what_is_raised_there_is_raised_here(fork_server: ForkServer) -> None:
    env = IsolatedEnv(fork_server, PATIENCE)
    for what, kind, said in (
        ("memory", MemoryError, "^$"),
        ("reset", ResetNeeded, "call reset"),
        ("row", DatasetError, "no such row"),
        ("own", RuntimeError, "Own"),
        ("else", RuntimeError, "SystemExit: else"),
    ):
        with pytest.raises(kind, match=said):
            env.ask("do", what)
    env.close()


def test_a_process_that_cannot_load_says_how_it_gets_what_it_needs(fork_server: ForkServer) -> None:
    broken = ForkServer("game", ("apart_game", "make"), {"greeting": "none"}, [], 2**30)
    with pytest.raises(PluginError, match=r"KeyError.*variables=NAME"):
        IsolatedEnv(broken, PATIENCE).ask("say", "x")


def exists(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_end_with_the_one_that_loaded(fork_server: ForkServer) -> None:
    env = IsolatedEnv(fork_server, PATIENCE)
    env.ask("say", "x")
    number = env._number
    assert fork_server._child is not None
    fork_server._child.channel.close()
    assert wait_for(lambda: not exists(number)), "it is still there"


def test_a_process_that_does_not_answer_in_time_is_ended(fork_server: ForkServer) -> None:
    env = IsolatedEnv(fork_server, PATIENCE)
    env.ask("say", "x")
    number, env._seconds = env._number, 0.5
    with pytest.raises(TimeoutError):
        env.ask("do", "hang")

    def ended() -> bool:
        another = IsolatedEnv(fork_server, PATIENCE)  # with which the one that loaded looks after those that ended
        another.ask("say", "x")
        another.close()
        return not exists(number)

    assert wait_for(ended), "it still computes"
