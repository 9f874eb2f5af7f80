"""`grpo plugins check`: what it reports, what it exits with, what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from command import Done, grpo
from patience import PATIENCE

from grpo.core.check.report import Report

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")


def check(*arguments: str) -> Done:
    return grpo("plugins", "check", *arguments)


def test_the_command_reports_every_kind_of_a_name_and_exits_by_severity(tmp_path: Path) -> None:
    done = check("gsm8k", "--json")
    assert [report["plugin"] for report in json.loads(done.stdout)] == ["verifier gsm8k", "env gsm8k"]
    assert done.returncode == 0
    done = check("reward:length")
    assert done.returncode == 0
    assert "1 warning" in done.stdout.splitlines()[0]
    done = check("proximity:table=qwen3_4b", "--json")
    [report] = json.loads(done.stdout)
    assert (done.returncode, report["ok"], report["plugin"]) == (0, True, "reward proximity:table=qwen3_4b")
    assert {finding["severity"] for finding in report["findings"]} == {"note"}, "it scores as published"
    file = tmp_path / "bad.py"
    file.write_text(
        "from grpo import Case, reward\n\n@reward(version=1, cases=[Case('a', expect=1.0)])\n"
        "def wrong(completion):\n    return 0.0\n"
    )
    done = check(f"{file}:wrong", "--json")
    [report] = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    assert "error" in {finding["severity"] for finding in report["findings"]}


def test_a_file_with_several_plugins_of_a_kind_is_refused_with_their_names_as_by_a_run(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "from grpo import Verdict\n\ndef first(completion):\n    return 1.0\n\ndef second(completion):\n"
        "    return 0.5\n\ndef third(completion) -> Verdict:\n    return Verdict(True)\n"
    )
    done = check(str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file} offers 2 rewards: first, second. Name one, as in {file}:first" in done.stderr
    assert check(f"{file}:first").stdout.startswith("reward first: ")


def test_a_misspelt_command_of_plugins_is_named() -> None:
    done = grpo("plugins", "chek", "proximity")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no command 'chek'. Did you mean 'check'?" in done.stderr


def test_options_choose_among_the_kinds_of_a_name() -> None:
    done = check("gsm8k:size=20", "--json")
    assert [report["plugin"] for report in json.loads(done.stdout)] == ["env gsm8k:size=20"]
    done = check("gsm8k:sise=20")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no option 'sise'" in done.stderr


PLUGINS = """
import gymnasium
from grpo import Case, EnvSpec, SandboxSpec, hookimpl, reward
from grpo.envs.text.spaces import AnyText
from grpo.plugins.errors import UsageError

class Echo(gymnasium.Env):
    def __init__(self):
        self.observation_space = self.action_space = AnyText()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "Say a.", {"row": {"answer": "a"}}

    def step(self, action):
        return "", 0.0, True, False, {}

@reward(version=1, range=(0.0, 1.0), cases=[Case("a", expect=1.0), Case("bbb", expect=0.0)])
def brief(completion: str) -> float:
    return float(len(completion.strip()) == 1)

@hookimpl
def grpo_rewards():
    return [brief]

@hookimpl
def grpo_envs():
    return [EnvSpec("echo", 1, Echo, rewards=("brevity",))]

def lent():
    raise UsageError("there is none to lend")

@hookimpl
def grpo_sandboxes():
    return [SandboxSpec("lent", 1, lent)]
"""


def test_all_that_is_installed_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward, an environment whose own reward has another name, a sandbox that cannot be made, a missing module."""
    (tmp_path / "echo_plugins.py").write_text(PLUGINS)
    info = tmp_path / "echo_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpo]\necho = echo_plugins\ngone = not_there\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("GRPO_PLUGINS", "echo-plugins")
    command = [sys.executable, "-m", "grpo", "plugins", "check", "--all", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    reports = {report["plugin"]: report for report in json.loads(done.stdout)}
    assert done.returncode == 1
    always = {name for name in reports if name.startswith(("loss ", "advantage ", "agent "))}  # of the engine itself
    assert {*reports} - always == {"reward brief", "env echo", "sandbox lent", "package echo-plugins"}
    assert reports["reward brief"]["ok"]
    assert reports["sandbox lent"]["findings"][0]["message"] == "there is none to lend"
    assert "No module named 'not_there'" in reports["package echo-plugins"]["findings"][0]["message"]
    assert "no reward 'brevity'" in reports["env echo"]["findings"][0]["message"]


def test_the_command_refuses_in_words() -> None:
    done = check("proximty")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'proximity'?" in done.stderr
    for arguments in ((), ("proximity", "--all")):
        done = check(*arguments)
        assert done.returncode == 2
        assert "name one plugin" in done.stderr


def test_a_check_of_an_environment_that_takes_long_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = threading.Event()
    echo = click.echo

    def echoed(*words: Any, **how: Any) -> None:
        echo(*words, **how)
        printed.set()

    def waits(env: object) -> Report:
        assert printed.wait(PATIENCE)
        return Report("env slow", (), ())

    monkeypatch.setattr("grpo.core.cli.check.QUIET", 0.0)
    monkeypatch.setattr("grpo.core.cli.check.click.echo", echoed)
    monkeypatch.setattr("grpo.core.check.env.check_env", waits)
    done = check("env:gsm8k")
    assert (done.returncode, done.stderr) == (0, "still checking gsm8k, for a minute at most ...\n")
