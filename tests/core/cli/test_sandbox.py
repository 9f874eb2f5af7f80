"""`grpo sandbox`: a program's end, for people and as JSON, and the check as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import Done, grpo


def sandbox(*arguments: str, cwd: Path) -> Done:
    return grpo("sandbox", *arguments, cwd=cwd)


@pytest.mark.slow
def test_a_program_is_run_and_described(tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text("print(sum(map(int, input().split())), '\\x1b[31mred')")
    (tmp_path / "numbers.txt").write_text("1 2 3\n")
    done = sandbox("run", "sum.py", "--stdin", "numbers.txt", "--cpu", "2", "--memory", "256", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("exited, exit code 0: 0.")
    assert done.stdout.endswith("stdout:\n  6 red\n")


@pytest.mark.slow
def test_the_result_is_one_json_object_with_every_key(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text("import os\nos.write(1, b'\\xff')\nwhile True: pass")
    done = sandbox("run", "loop.py", "--cpu", "0.2", "--json", "--backend", "local:slots=2", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert result["outcome"] == "time_cpu"
    assert result["stdout"] == "\\xff"
    assert result["signal"] == 9
    assert list(result) == [
        "outcome",
        "stdout",
        "stderr",
        "exit_code",
        "signal",
        "cpu_seconds",
        "wall_seconds",
        "peak_bytes",
        "degraded",
        "reason",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "none.py"), 2, "cannot read 'none.py': No such file or directory"),
        (("run", "x.py", "--backend", "lokal"), 2, "Did you mean 'local'?"),
        (("run", "x.py", "--cpu", "0"), 2, "--cpu"),
        (("run", "x.py", "--profile", "cobol"), 1, "unknown profile 'cobol'"),
    ],
)
def test_what_cannot_be_run_ends_in_words(tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    (tmp_path / "x.py").write_text("1")
    done = sandbox(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stdout + done.stderr


@pytest.mark.slow
def test_what_crashed_runs_left_is_removed(tmp_path: Path) -> None:
    program = (
        "import os\nfrom grpo.rewards.sandbox import cgroup\nfrom grpo.rewards.sandbox.spec import local\n"
        "pool = local(slots=2)\nplaces = cgroup.places()\n"
        "print(*(cgroup.Group(places).paths() if places else ()), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    crashed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert crashed.returncode == -9
    assert sandbox("reap", cwd=tmp_path).stdout == "local: nothing of crashed runs is left\n"
    for path in crashed.stdout.split():
        made_by = Path(path).name.rsplit("-", 1)[0]
        assert not list(Path(path).parent.glob(f"{made_by}-*"))
