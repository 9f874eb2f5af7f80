"""Tasks in files: what the policy sees, what is graded, and what a hostile episode cannot change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo.core.check.gold.validate import validate
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, OptionError, PluginNotFound
from grpo.plugins.host import Host
from grpo.plugins.session_pools import close_sessions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")
GRADE = "test -f sum.txt || { echo 'no sum.txt'; exit 1; }\ntest \"$(cat sum.txt)\" = 42\n"


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    yield
    close_sessions()


def task(root: Path, name: str = "sum", grader: str = GRADE, **files: str) -> Path:
    folder = root / name
    (folder / "grader").mkdir(parents=True)
    (folder / "files").mkdir()
    (folder / "files" / "numbers.txt").write_text("1\n41\n", encoding="utf-8")
    (folder / "instruction.md").write_text("Write the sum of numbers.txt into sum.txt.\n", encoding="utf-8")
    (folder / "grader" / files.pop("file", "grade.sh")).write_text(grader, encoding="utf-8")
    for path, text in files.items():
        (folder / path.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


def made(root: Path, options: str = "") -> tuple[BoundEnv, Any]:
    bound = Host.discover().env(f"shell:{root}{options}")
    return bound, bound.make()


def graded(root: Path, *commands: str, options: str = "") -> tuple[float, dict[str, Any], list[str]]:
    """Plays one episode of the first task; returns the score, the info and what each command printed."""
    bound, env = made(root, options)
    rows = bound.rows("train")
    assert rows is not None
    env.reset(options={"row": rows[0]})
    try:
        printed = [env.bash(command) for command in commands]
        _, reward, terminated, _, info = env.step("Done.")
        assert terminated
        return reward, info, printed
    finally:
        env.close()


def test_the_grader_pays_for_what_the_commands_left(tmp_path: Path) -> None:
    task(tmp_path)
    reward, info, printed = graded(tmp_path, "cat numbers.txt", "echo 42 > sum.txt", "false")
    assert (reward, info["success"]) == (1.0, True)
    assert printed == ["1\n41", "(no output)", "(exit status 1)"]
    reward, info, _ = graded(tmp_path)
    assert (reward, info["success"], info["grader"]) == (0.0, False, "no sum.txt")


def test_a_budget_that_ends_an_episode_grades_what_is_there(tmp_path: Path) -> None:
    task(tmp_path)
    bound, env = made(tmp_path)
    env.reset(options={"row": (bound.rows("train") or [])[0]})
    env.bash("echo 42 > sum.txt")
    assert env.cut()[1:4] == (1.0, False, True)


def test_a_grader_may_write_a_score(tmp_path: Path) -> None:
    task(tmp_path, grader="import os\nopen(os.environ['GRPO_SCORE'], 'w').write('0.25')\n", file="grade.py")
    assert graded(tmp_path, "true")[0] == 0.25


@pytest.mark.parametrize(("written", "score"), [("nan", 0.0), ("7", 1.0), ("-1", 0.0), ("words", 1.0)])
def test_a_score_that_is_none_counts_as_the_nearest_or_as_the_exit_status(
    tmp_path: Path, written: str, score: float
) -> None:
    task(tmp_path, grader=f"echo {written} > $GRPO_SCORE\n")
    assert graded(tmp_path, "true")[0] == score


@pytest.mark.parametrize(
    "attack",
    [
        "test -z \"$(find / -name 'grade*' -path '*grader*' 2>/dev/null)\" || echo 42 > sum.txt",
        "printf '#!/bin/sh\\nexit 0\\n' > test; cp test cat; chmod +x test cat; echo 'PATH=.:$PATH' >> ~/.bashrc",
        "echo 'exit 0' > ~/.bash_profile; export BASH_ENV=~/x; echo 'exit 0' > ~/x",
        "mkdir -p /grader; echo 'exit 0' > /grader/grade.sh",
        "(setsid sh -c 'sleep 1; echo 42 > sum.txt' > /dev/null 2>&1 &); kill -STOP 1",
        "ln -s /proc/self/fd/0 sum.txt",
    ],
)
def test_what_a_hostile_episode_plants_outside_of_its_answer_pays_nothing(tmp_path: Path, attack: str) -> None:
    task(tmp_path, grader=f"sleep 2\n{GRADE}" if "sleep" in attack else GRADE)
    assert graded(tmp_path, attack)[0] == 0.0


def test_limits_end_a_command_and_the_policy_is_told(tmp_path: Path) -> None:
    task(tmp_path)
    commands = ("sleep 60", "seq 100000", "python3 -c 'x = bytearray(2**30)' 2>/dev/null; echo $?")
    _, _, printed = graded(tmp_path, *commands, options=":seconds=1,shown=100,memory=128")
    assert "took longer than 1 s" in printed[0]
    assert "[...]" in printed[1]
    assert printed[1].endswith("99999\n100000")
    assert "0" not in printed[2].split()[:1]


def test_a_grader_that_hangs_gives_nothing_and_says_so(tmp_path: Path) -> None:
    task(tmp_path, grader="sleep 600\n")
    reward, info, _ = graded(tmp_path, "true", options=":grade_seconds=1")
    assert (reward, info["grader"]) == (0.0, "the grader ran out of time")


def test_splits_are_folders_and_a_held_out_one_must_be_there(tmp_path: Path) -> None:
    task(tmp_path / "train", "one")
    task(tmp_path / "test", "two")
    bound, _ = made(tmp_path)
    assert [[row["task"] for row in bound.rows(split) or ()] for split in ("train", "test")] == [["one"], ["two"]]
    bound, _ = made(tmp_path / "train")
    with pytest.raises(DatasetError, match="no held-out tasks"):
        bound.rows("test")


@pytest.mark.parametrize(
    ("lacks", "problem"),
    [("instruction.md", "a task needs the file"), ("grader/grade.sh", "no grader"), ("", "has no tasks")],
)
def test_a_task_that_cannot_be_used_is_refused_by_its_folder(tmp_path: Path, lacks: str, problem: str) -> None:
    tmp_path = tmp_path / "tasks"
    tmp_path.mkdir()
    if lacks:
        (task(tmp_path) / lacks).unlink()
    bound = Host.discover().env(f"shell:{tmp_path}")
    with pytest.raises(DatasetError, match=problem):
        bound.rows("train")


def test_a_folder_or_an_option_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginNotFound, match="there is no folder"):
        Host.discover().env("shell:./nowhere")
    task(tmp_path)
    with pytest.raises(OptionError, match="memory=0 must be above 0"):
        made(tmp_path, ":memory=0")


def test_gold_solutions_are_played_and_accepted(tmp_path: Path) -> None:
    task(tmp_path, "right", solution_sh="paste -sd+ numbers.txt | python3 -c 'print(eval(input()))' > sum.txt")
    task(tmp_path, "wrong", solution_sh="echo 41 > sum.txt")
    task(tmp_path, "without")
    found = validate(f"shell:{tmp_path}")
    assert [Path(row.place).name for row in found.refused] == ["wrong"]
    assert [Path(place).name for place in found.without] == ["without"]
