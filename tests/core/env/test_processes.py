"""Environments in processes of their own: the answers of threads, and who pays for a crash or a hang."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from patience import PATIENCE

from grpo.core.env.env_batch import LocalEnvBatch
from grpo.core.env.episodes import episodes_of
from grpo.core.env.processes import EnvProcesses, RemoteEnvs, processes_of, starting_place
from grpo.core.env.step import take_step
from grpo.core.env.threads import Raised
from grpo.core.env.tools import ToolCall
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import PluginError
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec

pytestmark = pytest.mark.slow

SOURCE = """
import ctypes, math, os, signal, threading, time, types
import gymnasium
from grpo import EnvSpec
from grpo.core.env import threads
from grpo.plugins.errors import RunError

HANGS = threading.Event()

class Desk(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Text(1000)

    def __init__(self):
        self.said = []
        self.tools = [self.recall]

    def recall(self) -> str:
        '''Recalls what was said.'''
        return " ".join(self.said)

    def reset(self, *, seed=None, options=None):
        return f"Episode {seed}", {}

    def step(self, action):
        self.said.append(action)
        match action:
            case "pid":
                return str(os.getpid()), 0.0, False, False, {}
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
                time.sleep(120)  # another thread may be the one that is given the signal
            case "hang":
                HANGS.set()
                time.sleep(120)
            case "late":  # answers when the time of the other one is up
                HANGS.wait(60)
                threads.time = types.SimpleNamespace(monotonic=lambda: time.monotonic() + 61)
            case "power":
                math.factorial(10**8)
            case "raise":
                raise RunError("as it was asked to")
        return action.upper(), 1.0, action == "end", False, {"success": True}

DESK = EnvSpec(name="desk", version=1, factory=Desk, max_turns=4)
"""


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    (tmp_path / "desk.py").write_text(SOURCE)
    return Host([]).env(f"{tmp_path}/desk.py:DESK")


@pytest.fixture
def processes(desk: Any) -> Iterator[EnvProcesses]:
    made = EnvProcesses(desk, 2)
    yield made
    made.close()


STARTS = """
import ctypes, os, signal, sys, time
import gymnasium
from grpo import EnvSpec

class Starting(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Text(1000)

    def __init__(self, how=""):
        self.how = how

    def reset(self, *, seed=None, options=None):
        if seed == 5:
            match self.how:
                case "ends its process":
                    os._exit(7)
                case "crashes":
                    os.kill(os.getpid(), signal.SIGSEGV)
                    time.sleep(120)
                case "exits":
                    sys.exit(0)
                case "hangs":
                    time.sleep(120)
                case "holds the interpreter's lock":
                    ctypes.PyDLL(None).sleep(120)
        return f"Episode {seed}", {}

ONE_TURN = EnvSpec(name="start", version=1, factory=Starting)
TURNS = EnvSpec(name="start", version=1, factory=Starting, max_turns=4)
"""


def said(envs: LocalEnvBatch | RemoteEnvs, **by_number: str) -> dict[int, Any]:
    return envs.call({int(number[1:]): partial(take_step, action) for number, action in by_number.items()})


def started(envs: Any, desk: Any, count: int) -> None:
    episodes = episodes_of(desk, "train", limit=count, unbounded=count, describe_tools=False)
    assert envs.start(dict(enumerate(episodes))) == dict.fromkeys(range(count), True)


@pytest.mark.core
def test_they_answer_as_threads_do_and_each_keeps_its_state(desk: Any, processes: EnvProcesses) -> None:
    answers = []
    for envs in (LocalEnvBatch(desk.make, seconds=PATIENCE), processes.played(PATIENCE)):
        with envs:
            started(envs, desk, 4)
            first = said(envs, n0="a", n1="b", n2="c", n3="end")
            second = said(envs, n0="d", n2="e")
            recalled = envs.use({0: ToolCall("recall", {}), 1: ToolCall("recall", {}), 2: ToolCall("forget", {})})
            answers.append((first, second, recalled))
    assert answers[0] == answers[1]
    assert answers[1][2][0] == "a d"
    assert answers[1][0][3].terminated


def test_they_have_several_processes_which_stay_for_the_next_batch(desk: Any, processes: EnvProcesses) -> None:
    numbers = []
    for _ in range(2):
        with processes.played(PATIENCE) as envs:
            started(envs, desk, 4)
            numbers.append(
                {answer.observation for answer in said(envs, n0="pid", n1="pid", n2="pid", n3="pid").values()}
            )
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) == 2
    assert str(os.getpid()) not in numbers[0]


@pytest.mark.core
def test_a_crash_costs_the_rollouts_of_its_process_and_the_next_batch_has_another_one(
    desk: Any, processes: EnvProcesses
) -> None:
    with processes.played(PATIENCE) as envs:
        started(envs, desk, 4)
        answers = said(envs, n0="crash", n1="b", n2="c", n3="d")
        assert isinstance(answers[0], Raised)
        assert isinstance(answers[2], Raised)
        assert "its process was killed by SIGSEGV" in str(answers[0].error)
        assert [answers[1].observation, answers[3].observation] == ["B", "D"]
        again = said(envs, n1="x", n2="y")
        assert again[1].observation == "X"
        assert isinstance(again[2], Raised)
    with processes.played(PATIENCE) as envs:
        started(envs, desk, 4)
        assert [answer.observation for answer in said(envs, n0="a", n1="b", n2="c").values()] == ["A", "B", "C"]


@pytest.mark.core
def test_a_hang_costs_its_own_rollout_and_an_exception_keeps_its_name_and_words(
    desk: Any, processes: EnvProcesses
) -> None:
    with processes.played(PATIENCE) as envs:
        started(envs, desk, 4)
        answers = said(envs, n0="hang", n1="raise", n2="late")
        assert "no answer within 60 s" in str(answers[0].error)
        assert (type(answers[1].error).__name__, str(answers[1].error)) == ("RunError", "as it was asked to")
        assert answers[1].line == "", "a message of ours says enough"
        assert answers[2].observation == "LATE"


def test_one_that_keeps_the_lock_of_its_process_is_ended_with_it(
    desk: Any, processes: EnvProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def until_one_answers(asked: Collection[Future[bytes]], seconds: float) -> None:
        limits.append(seconds)
        wait(asked, PATIENCE, FIRST_COMPLETED)

    with processes.played(PATIENCE) as envs:
        started(envs, desk, 4)
        with monkeypatch.context() as patched:
            patched.setattr("grpo.core.env.processes.wait", until_one_answers)
            answers = said(envs, n0="power", n1="b")
        assert limits == [PATIENCE + 5.0]
        assert isinstance(answers[0], Raised)
        assert answers[1].observation == "B"
        assert "held all of them up" in str(said(envs, n2="c")[2].error)


def test_who_plays_the_same_environment_shares_its_processes(desk: Any) -> None:
    one = processes_of(desk, 2)
    assert one is processes_of(desk, 2)
    assert one is not processes_of(desk, 3)
    assert processes_of(desk, 0) is None


def test_its_processes_end_with_it(desk: Any) -> None:
    made = EnvProcesses(desk, 1)
    with made.played(PATIENCE) as envs:
        started(envs, desk, 1)
        process = int(said(envs, n0="pid")[0].observation)
    del envs
    made.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


@pytest.mark.core
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("ends its process", "SystemExit: it called os._exit(7)"),
        ("crashes", "its process was killed by SIGSEGV"),
        ("exits", "SystemExit: 0"),
    ],
)
def test_an_episode_that_cannot_be_started_before_a_run_is_named_and_ends_no_command(
    tmp_path: Path, how: str, why: str
) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    for name in ("TURNS", "ONE_TURN"):
        env = replace(Host([]).env(f"{tmp_path}/starts.py:{name}"), options={"how": how})
        with pytest.raises(PluginError, match=re.escape(f"cannot start seed 5: {why}")):
            episodes_of(env, "train", limit=9, unbounded=9, opened=starting_place(env, 0, PATIENCE))


@pytest.mark.parametrize("how", ["hangs", "holds the interpreter's lock"])
def test_an_episode_that_does_not_start_in_time_before_a_run_is_named(tmp_path: Path, how: str) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    env = replace(Host([]).env(f"{tmp_path}/starts.py:TURNS"), options={"how": how})
    with pytest.raises(PluginError, match=r"cannot start seed 5: TimeoutError: no answer within 3 s\. In a run"):
        episodes_of(env, "train", limit=9, unbounded=9, opened=starting_place(env, 0, 3.0))


def test_episodes_are_started_in_another_process_as_in_this_one(tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    env = Host([]).env(f"{tmp_path}/starts.py:TURNS")
    here = episodes_of(env, "test", limit=700, unbounded=1)
    assert episodes_of(env, "test", limit=700, unbounded=1, opened=starting_place(env, 0, PATIENCE)) == here


def test_what_exists_in_this_process_alone_is_started_in_it() -> None:
    lock = threading.Lock()

    class Own(gymnasium.Env[str, str]):
        def reset(self, **_: Any) -> tuple[str, dict[str, Any]]:
            with lock:
                return f"Process {os.getpid()}", {}

    env = BoundEnv(EnvSpec(name="own", version=1, factory=Own, max_turns=2), "__main__")
    (episode,) = episodes_of(env, "train", limit=1, unbounded=1, opened=starting_place(env, 0, PATIENCE))
    assert episode.prompt[0]["content"] == f"Process {os.getpid()}"
