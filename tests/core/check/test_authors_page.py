"""docs/authors.md is true: its files are written, its commands run, and they print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo import check_env, check_reward, check_verifier
from grpo.envs.text.templates import TEMPLATES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "authors.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GRPO_PLUGINS": "grpo-kit"}
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    commands = 0
    for language, name, body in BLOCKS:
        if name:
            (tmp_path / name).write_text(body, encoding="utf-8")
            continue
        assert language == "console"
        line, _, shown = body.partition("\n")
        words = shlex.split(line.removeprefix("$ "))
        assert words[0] == "grpo"
        done = run([sys.executable, "-m", *words], tmp_path)
        assert done.stdout.replace(str(tmp_path.resolve()), "/home/you") == shown, done.stderr
        assert done.returncode == (1 if " error" in shown else 0)
        commands += 1
    assert commands == 5
    # Without the entry point, which a checkout may have or not, and with the module itself.
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:grpo", "-p", "grpo.core.check.fixture", "test_near.py"]
    done = run(pytest_, tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_every_relation_that_is_tried_is_on_the_page() -> None:
    for report in (check_reward("proximity"), check_verifier("gsm8k"), check_env("gsm8k:size=20")):
        assert report.ok, str(report)
        for relation in report.relations:
            assert f"`{relation}`" in PAGE


def test_the_repaired_reward_pays_for_one_correct_number_and_for_no_hedge() -> None:
    _, repaired = (body for _, name, body in BLOCKS if name == "near.py")
    names: dict[str, Any] = {}
    exec(repaired, names)
    near, gold = names["near"], "6 * 7 = <<6*7=42>>42\n#### 42"
    assert [near(case.completion, *case.row.values()) for case in near.cases] == [case.expect for case in near.cases]
    for template in TEMPLATES.values():
        assert near(template.render("6 * 7 = <<6*7=42>>42", "42"), gold) == 1.0
    for hedge in ("41 or 43 or 42", "It is 41 or it is 42.", "#### 41\n#### 42", "41 / 42", "42, 43"):
        assert near(hedge, gold) == 0.0
