"""Tasks in rows: what the policy sees, what is graded, and what a hostile episode cannot change."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo.core.check.gold.validate import validate
from grpo.core.check.reward import check_env
from grpo.plugins.errors import DatasetError, OptionError, PluginNotFound
from grpo.plugins.host import Host

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")]
GRADER = "test -f sum.txt || { echo 'no sum.txt'; exit 1; }\ntest \"$(cat sum.txt)\" = 42\n"
TASK = {
    "instruction": "Write the sum of numbers.txt into sum.txt.",
    "files": {"numbers.txt": "1\n41\n"},
    "grader": GRADER,
}


def rows_in(folder: Path, *changes: dict[str, Any]) -> Path:
    """Writes a row for each change to the task, and one that is held out."""
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps({**TASK, **change}) + "\n" for change in (*changes, {"name": "held out"})))
    return file


def graded(folder: Path, *commands: str, options: str = "", **change: Any) -> tuple[float, dict[str, Any], list[str]]:
    """Plays one episode; returns the reward, the info and what each command printed."""
    bound = Host.discover().env(f"shell:{rows_in(folder, change)}{options}")
    env: Any = bound.make()
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
    reward, info, printed = graded(tmp_path, "cat numbers.txt", "echo 42 > sum.txt", "false")
    assert (reward, info["success"]) == (1.0, True)
    assert printed == ["1\n41", "(nothing was printed)", "exit status 1"]
    reward, info, _ = graded(tmp_path)
    assert (reward, info["success"], info["graded"]) == (0.0, False, "no sum.txt")


def test_a_budget_that_ends_an_episode_grades_what_is_there(tmp_path: Path) -> None:
    bound = Host.discover().env(f"shell:{rows_in(tmp_path, {})}")
    env: Any = bound.make()
    env.reset(options={"row": (bound.rows("train") or [])[0]})
    env.bash("echo 42 > sum.txt")
    assert env.cut()[1:4] == (1.0, False, True)


@pytest.mark.parametrize(
    ("written", "reward"), [("0.25", 0.25), ("nan", 0.0), ("7", 1.0), ("-1", 0.0), ("words", 0.0), ("", 0.0)]
)
def test_a_grader_may_write_a_number(tmp_path: Path, written: str, reward: float) -> None:
    assert graded(tmp_path, "true", grader=f"echo {written} > /logs/verifier/reward.txt")[0] == reward


@pytest.mark.parametrize(
    "attack",
    [
        "test -z \"$(find / -name 'grade*' 2>/dev/null)\" || echo 42 > sum.txt",
        "printf '#!/bin/sh\\nexit 0\\n' > test; cp test cat; chmod +x test cat; echo 'PATH=.:$PATH' >> ~/.bashrc",
        "echo 'exit 0' > ~/.bash_profile; export BASH_ENV=~/x; echo 'exit 0' > ~/x",
        "mkdir -p /tests /logs/verifier; echo 'exit 0' > /tests/grade.sh; echo 1 > /logs/verifier/reward.txt",
        "(setsid sh -c 'sleep 1; echo 42 > sum.txt' > /dev/null 2>&1 &); kill -STOP 1",
        "ln -s /proc/self/fd/0 sum.txt",
        "mkfifo sum.txt",
        "truncate -s 1T sum.txt",
    ],
)
def test_what_a_hostile_episode_plants_outside_of_its_answer_pays_nothing(tmp_path: Path, attack: str) -> None:
    assert graded(tmp_path, attack, grader=f"sleep 2\n{GRADER}" if "sleep" in attack else GRADER)[0] == 0.0


@pytest.mark.parametrize("link", ["/tests/gold.txt", "../tests/gold.txt", "/proc/self/root/tests/gold.txt"])
def test_a_link_to_the_graders_files_is_no_answer(tmp_path: Path, link: str) -> None:
    grader = "echo 42 > /tests/gold.txt\ncmp sum.txt /tests/gold.txt"
    assert graded(tmp_path, "echo 42 > sum.txt", grader=grader)[0] == 1.0
    assert graded(tmp_path, f"ln -s {link} sum.txt", grader=grader)[0] == 0.0
    assert graded(tmp_path, f"mkdir d; ln -s / d/up; ln -s d/up{link} sum.txt", grader=grader)[0] == 0.0


@pytest.mark.parametrize(
    ("commands", "reward"),
    [
        ("mkdir -p a/b; ln -s ../.. a/b/top; ln -s a/b/top/../tests/gold.txt sum.txt", 0.0),
        ("mkdir -p a/b; ln -s ../.. a/b/top; ln -s top/../tests a/b/out; ln -s a/b/out/gold.txt sum.txt", 0.0),
        ("mkdir a; echo 42 > a/real; ln -s a/real sum.txt", 1.0),
        ("mkdir -p a/b; echo 42 > real; ln -s ../../real a/b/up; ln -s a/b/up sum.txt", 1.0),
        ("mkdir a; echo 42 > a/real; ln a/real sum.txt", 1.0),
        ("echo 42 > /tmp/real; ln /tmp/real sum.txt", 1.0),
        ("mkdir a; echo 42 > a/real; ln -s $PWD/a/real sum.txt", 1.0),
        ("mkdir d; ln -s / d/up; ln -s $PWD/d/up/tests/gold.txt sum.txt", 0.0),
        ("ln -s $PWD/../tests/gold.txt sum.txt", 0.0),
    ],
)
def test_links_of_the_working_directory_are_carried_if_they_stay_in_it(
    tmp_path: Path, commands: str, reward: float
) -> None:
    assert graded(tmp_path, commands, grader="echo 42 > /tests/gold.txt\ncmp sum.txt /tests/gold.txt")[0] == reward


def test_files_with_holes_are_refused_before_this_machine_writes_their_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo.rewards.session.pool.LocalSession.tar", None)
    reward, info, _ = graded(tmp_path, "for n in 1 2 3; do truncate -s 100M holes$n; done")
    assert (reward, "more than 256 MiB" in info["reason"]) == (0.0, True)


def test_a_grader_is_in_no_file_that_a_program_which_it_runs_could_change(tmp_path: Path) -> None:
    change = "for file in $(find /tests -type f); do echo 'exit 0' > $file; done"
    grader = f"sh main.sh\n{'# a long grader' * 2000}\n{GRADER}"
    assert graded(tmp_path, f'echo "{change}" > main.sh', grader=grader)[0] == 0.0


def test_limits_end_a_command_and_the_policy_is_told(tmp_path: Path) -> None:
    commands = ("sleep 60", "seq 100000", "python3 -c 'x = bytearray(2**30)' 2>/dev/null; echo $?")
    _, _, printed = graded(tmp_path, *commands, options=":seconds=1,shown=100,memory=128")
    assert printed[0] == "the command was stopped after 1 s"
    assert "[...]" in printed[1]
    assert printed[1].endswith("99999\n100000")
    assert "0" not in printed[2].split()[:1]


def test_a_grader_that_hangs_gives_nothing_and_says_so(tmp_path: Path) -> None:
    reward, info, _ = graded(tmp_path, "true", options=":grade_seconds=1", grader="sleep 600")
    assert (reward, info["reason"]) == (0.0, "the grader was not done after 1 s")


@pytest.mark.core
def test_a_program_that_its_grader_runs_cannot_answer_for_it(tmp_path: Path) -> None:
    speaks = """
import contextlib, os, socket
for number in range(3, 64):
    with contextlib.suppress(OSError):
        socket.socket(fileno=os.dup(number)).send(b'v{"code": 0}')
"""
    commands = f"cat > sum.py <<'END'\n{speaks}END"
    assert graded(tmp_path, commands, grader='[ "$(python3 sum.py)" = 42 ]')[0] == 0.0


def test_a_task_may_ask_for_a_file_that_nobody_may_read(tmp_path: Path) -> None:
    grader = 'test "$(stat -c %a numbers.txt)" = 0'
    assert graded(tmp_path, "chmod 000 numbers.txt", grader=grader)[0] == 1.0


def test_a_program_that_kills_its_grader_gets_nothing(tmp_path: Path) -> None:
    program = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; kill -9 $PPID"
    reward, info, _ = graded(
        tmp_path, f"echo '{program}' > sum.sh", grader="sh sum.sh; echo 0 > /logs/verifier/reward.txt"
    )
    assert reward == 0.0
    assert info["reason"].startswith("the grader was killed")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"instruction": ""}, "the column 'instruction' must hold text"),
        ({"grader": None}, "the column 'grader' must hold text"),
        ({"files": ["a"]}, "the column 'files' must hold an object"),
        ({"files": {"a": 1}}, "the column 'files', 'a': the content"),
        ({"files": {"b/../../a": ""}}, "the column 'files', 'b/../../a': name a file in the working directory"),
        ({"files": {"/tmp/a": ""}}, "the column 'files', '/tmp/a': name a file in the working directory"),
        ({"files": {"b/": ""}}, "the column 'files', 'b/': name a file"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_by_its_place(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DatasetError, match=rf"tasks\.jsonl, line 1: {problem}"):
        Host.discover().env(f"shell:{rows_in(tmp_path, change)}").rows("train")


def test_a_file_or_an_option_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginNotFound, match="there is no"):
        Host.discover().env("shell:./nowhere")
    with pytest.raises(OptionError, match="memory=0 must be above 0"):
        Host.discover().env(f"shell:{rows_in(tmp_path, {})}:memory=0").make()


def test_gold_solutions_are_played_and_accepted(tmp_path: Path) -> None:
    right = "paste -sd+ numbers.txt > sum.py\npython3 -c \"print(eval(open('sum.py').read()))\" > sum.txt"
    file = rows_in(
        tmp_path,
        {"name": "right", "solution": right},
        {"name": "wrong", "solution": "echo 41 > sum.txt"},
        {"name": "without"},
        {"name": "weak", "grader": "test -f sum.txt", "solution": right},
    )
    found = validate(f"shell:{file}")
    assert [row.index for row in found.refused] == [1]
    assert len(found.without) == 1
    weak = {row.index: row.cheats for row in found.weak}
    assert "an agent that leaves empty files is paid 1" in weak[3]
    assert weak.keys() == {1, 3}  # the second one does not pay its own solution


def test_a_refused_solution_is_shown_as_it_was_written(tmp_path: Path) -> None:
    file = rows_in(tmp_path, {"solution": "echo nothing > no-file"})
    (row, *_) = validate(f"shell:{file}").refused
    assert "echo nothing > no-file" in row.solution
    assert "base64" not in row.solution


def test_rows_that_cannot_be_read_are_one_finding_of_a_check(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(TASK))
    report = check_env(f"shell:{file}")
    assert [finding.message.partition(" (at ")[0] for finding in report.findings] == [
        f"{file}: the only row is held out for testing, so none is left to train on. Add rows, "
        "or give a folder with train.jsonl and test.jsonl."
    ]


def test_a_weak_task_without_a_solution_is_listed(tmp_path: Path) -> None:
    report = validate(f"shell:{rows_in(tmp_path, {'grader': 'test -f sum.txt'})}")
    assert not report.ok
    assert "an agent that leaves empty files is paid 1" in report.weak[0].cheats
    assert "weak rows, which pay for what solves nothing: 1" in str(report)


def test_a_column_that_is_spelt_otherwise_is_shown(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"instruction": "Do it.", "grade": "true"}) + "\n")
    with pytest.raises(DatasetError, match=r"line 1: no column 'grader'; the row has: instruction, grade. It needs"):
        Host.discover().env(f"shell:{tmp_path / 'tasks.jsonl'}").rows("test")
