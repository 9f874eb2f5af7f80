"""`grpo plugins check`: what it reports, what it exits with, what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture(autouse=True)
def _only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")


def grpo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo", "plugins", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})


def test_the_command_reports_every_kind_of_a_name_and_exits_by_severity() -> None:
    done = grpo("gsm8k", "--json")
    assert [report["plugin"] for report in json.loads(done.stdout)] == ["verifier gsm8k", "env gsm8k"]
    assert done.returncode == 0
    done = grpo("reward:length")
    assert done.returncode == 0
    assert "1 warning" in done.stdout.splitlines()[0]
    done = grpo("proximity:table=qwen3_4b", "--json")
    [report] = json.loads(done.stdout)
    assert (done.returncode, report["ok"], report["plugin"]) == (1, False, "reward proximity:table=qwen3_4b")
    assert {finding["severity"] for finding in report["findings"]} == {"error", "warning"}


def test_options_choose_among_the_kinds_of_a_name() -> None:
    done = grpo("gsm8k:size=20", "--json")
    assert [report["plugin"] for report in json.loads(done.stdout)] == ["env gsm8k:size=20"]
    done = grpo("gsm8k:sise=20")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no option 'sise'" in done.stderr


def test_all_that_is_installed_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "envs")  # our environment without our rewards
    done = grpo("--all", "--json")
    reports = {report["plugin"]: report for report in json.loads(done.stdout)}
    assert done.returncode == 1
    assert "no reward 'proximity'" in reports["env gsm8k"]["findings"][0]["message"]


def test_the_command_refuses_in_words() -> None:
    done = grpo("proximty")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'proximity'?" in done.stderr
    for arguments in ((), ("proximity", "--all")):
        done = grpo(*arguments)
        assert done.returncode == 2
        assert "name one plugin" in done.stderr
