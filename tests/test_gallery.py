"""docs/gallery.md is true: every job of it is checked in full, and each trains for a step on this machine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from grpo.core.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
JOBS = re.findall(r"^    (grpo run .+)$", PAGE, re.MULTILINE)
CHECKS = re.findall(r"^    (grpo plugins check .+)$", PAGE, re.MULTILINE)
SMALL = [
    "--steps",
    "1",
    "--prompts-per-step",
    "1",
    "--group-size",
    "2",
    "--eval-size",
    "0",
    "--eval-every",
    "0",
    "--quiet",
]


def here(command: str, *more: str) -> int:
    """Runs a command of the page in this process, with the embedded model in the place of a real one."""
    words = shlex.split(command)[1:]
    if "--model" in words:
        place = words.index("--model")
        words[place : place + 2] = []
    if "--warmup-steps" in words:
        words[words.index("--warmup-steps") + 1] = "1"
    if "--max-completion-length" in words:
        words[words.index("--max-completion-length") + 1] = "24"
    return int(cli([*words, *more], standalone_mode=False) or 0)


def test_the_page_has_a_job_of_each_kind() -> None:
    assert len(JOBS) >= 10
    assert len(CHECKS) == 2
    for part in ("gsm8k", "code", "email", "guess", "python-tool", "boxes.py", "gym:", "shortest_right.py"):
        assert any(part in job for job in JOBS), part


@pytest.mark.parametrize("command", CHECKS)
def test_what_it_checks_holds(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert here(command) == 0
    assert " hold" in capsys.readouterr().out


def test_a_job_that_needs_a_server_says_so_before_its_command() -> None:
    before = PAGE.partition("    grpo run --env email")[0].rpartition("## ")[2]
    assert "needs a judge" in before
    assert "http://localhost:8000/v1" in before


# The others need a judge (tests/rewards/judge/test_mail.py) and a real model (tests/core/run/test_real_model.py).
@pytest.mark.slow
@pytest.mark.parametrize("command", [job for job in JOBS if ".toml" not in job])
def test_each_job_trains(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert here(command, *SMALL, "--out", str(tmp_path / "run")) == 0
    assert (tmp_path / "run" / "model").is_dir()
