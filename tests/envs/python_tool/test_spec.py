"""`python-tool`: programs run in the real sandbox, hostile ones are contained, its trouble is never an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import grpo.envs
from grpo import check_env
from grpo.envs.python_tool.spec import PYTHON_TOOL
from grpo.plugins import pools
from grpo.plugins.errors import OptionError, PluginNotFound, TransientError
from grpo.plugins.sandbox_job import Job, JobResult

ROW = {"question": "Two boxes of 12 and 5 more?", "answer": "2*12=<<2*12=24>>24\n24+5=<<24+5=29>>29\n#### 29"}


@pytest.fixture(scope="module")
def env() -> Any:
    return PYTHON_TOOL(seconds=0.5, calls=7, shown=60)


def told(env: Any, *programs: str) -> list[str]:
    env.reset(options={"row": ROW})
    return [env.python(program) for program in programs]


@pytest.mark.slow
def test_it_is_offered_and_passes_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    assert PYTHON_TOOL in grpo.envs.grpo_envs()
    assert gymnasium.make("grpo.envs:grpo/python-tool-v1").reset(seed=1)[0]
    assert check_env("python-tool:size=20,seconds=0.3").findings == ()


def test_the_demonstration_calculates_and_answers(env: Any) -> None:
    question, info = env.reset(options={"row": ROW})
    call, final = info["demonstration"]
    assert (question, info["row"]["answer"]) == (ROW["question"], "29")
    assert call == {"tool": "python", "arguments": {"code": "print(2*12)\nprint(24+5)"}}
    assert env.python(**call["arguments"]) == "24\n29"
    assert final == "<answer>\n29\n</answer>\n"
    assert env.step(final)[1:4] == (0.0, True, False), "rewards score the text"
    bare = env.reset(options={"row": {"question": "How many?", "answer": "7"}})[1]
    assert "demonstration" not in bare or isinstance(bare["demonstration"], str)


@pytest.mark.core
def test_a_program_is_answered_whatever_it_does(env: Any) -> None:
    printed, nothing, raised, looped, long = told(
        env, "print('é', 6 * 7)", "x = 1", "print(1)\n1 / 0", "while True: pass", "print('a' * 500, 'end')"
    )
    assert (printed, nothing) == ("é 42", "(the program printed nothing)")
    assert raised.startswith("1\n")
    assert raised.endswith("Error: division by zero"), "of an error the end is shown"
    assert looped.startswith("the program was stopped: it ")
    assert len(long) < 80
    assert long.endswith("end")


def test_hostile_programs_are_contained_and_the_next_one_runs(env: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for program in (
        "import os\nwhile True: os.fork()",
        "a = ['x' * 2**20 for _ in range(2**20)]",
        f"open({str(mark)!r}, 'w').write('out')",
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "import socket; socket.create_connection(('127.0.0.1', 22))",
        "import os; os.write(1, b'\\xff' * 10**7)",
    ):
        (answer,) = told(env, program)
        assert isinstance(answer, str)
    assert not mark.exists()
    assert told(env, "print(6 * 7)") == ["42"]


def test_calls_are_counted_in_each_episode_anew() -> None:
    env: Any = PYTHON_TOOL(calls=1)
    for seed in (1, 2):
        env.reset(seed=seed)
        assert env.python("print(1)") == "1"
        with pytest.raises(RuntimeError, match="all 1 calls are used: answer now"):
            env.python("print(1)")
    env.reset(seed=3)
    with pytest.raises(TypeError, match="code must be the text of a program, not int"):
        env.python(7)


class Failing:
    """A pool whose first results are trouble of its own."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        self.times -= 1
        return [JobResult("sandbox_error" if self.times >= 0 else "exited", stdout=b"42\n", exit_code=0) for _ in jobs]

    def capabilities(self) -> Mapping[str, bool]:
        return {}

    def close(self) -> None:
        """Has started nothing."""


def test_trouble_of_the_sandbox_is_tried_again_and_then_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for times, answered in ((2, True), (3, False)):
        pool = Failing(times)
        monkeypatch.setattr(pools, "pool_of", lambda spec, pool=pool: pool)
        env: Any = PYTHON_TOOL()
        env.reset(seed=1)
        if answered:
            assert env.python("print(42)") == "42"
        else:
            with pytest.raises(TransientError, match="the sandbox 'local' failed 3 times: sandbox_error"):
                env.python("print(42)")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"calls": 0}, OptionError),
        ({"calls": 8}, OptionError),
        ({"seconds": 0.0}, OptionError),
        ({"seconds": float("nan")}, OptionError),
        ({"memory": 0}, OptionError),
        ({"shown": 0}, OptionError),
        ({"sandbox": "nowhere"}, PluginNotFound),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        PYTHON_TOOL(**options)


def test_rows_are_those_of_gsm8k_the_same_for_the_same_seed() -> None:
    rows = PYTHON_TOOL.dataset
    assert rows("train", size=5, data_seed=3) == rows("train", size=5, data_seed=3, calls=2)
    assert not {row["question"] for row in rows("train", size=50)} & {row["question"] for row in rows("test", size=50)}
