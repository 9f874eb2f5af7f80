"""What a run with an agent says before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from grpo.core.cli.main import cli

AGENT = "def run(task, access):\n    return '3'\n"


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(AGENT)
    return f"python:{tmp_path / 'mine.py'}:run"


def test_a_dry_run_counts_calls_and_tokens_and_shows_the_task(spec: str) -> None:
    options = ["--env", "gsm8k", "--reward", "proximity", "--agent", spec, "--set", "rollout.max_turns=6"]
    done = CliRunner().invoke(cli, ["run", *options, "--dry-run"], catch_exceptions=False)
    assert f"{spec}: at most 6 calls and 576 sampled tokens an episode, 384 calls a step\n" in done.output
    assert "up to 96 new tokens in each of up to 6 calls; the longest task has" in done.output
    assert "the first task, as the agent gets it (the agent writes" in done.output
    assert "as the model reads it" not in done.output
    assert f"grpo plugins check agent:{spec}\n" in done.output


def test_a_script_that_is_not_there_is_a_warning_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text("")
    options = ["run", "--env", "gsm8k", "--reward", "proximity", "--dry-run", "--agent"]
    missing = CliRunner().invoke(cli, [*options, "cmd:python agnt.py"], catch_exceptions=False)
    assert "agent 'cmd:python agnt.py': there is no file agnt.py here. Did you mean 'agent.py'?" in missing.output
    there = CliRunner().invoke(cli, [*options, "cmd:python agent.py"], catch_exceptions=False)
    assert "there is no file" not in there.output
    quoted = CliRunner().invoke(cli, [*options, "cmd:'python agent.py'"])
    assert "Leave those around the line out: cmd:python agent.py" in str(quoted.exception)


def test_grpo_plan_says_that_prompts_are_the_agents_own(spec: str) -> None:
    options = ["--env", "gsm8k", "--reward", "proximity", "--agent", spec, "--steps", "2"]
    done = CliRunner().invoke(cli, ["plan", *options], catch_exceptions=False)
    assert "2 steps: 128 episodes of an agent, at most 2,560 calls, at most 246 k sampled tokens" in done.output
    assert f"grpo plugins check agent:{spec}\n" in done.output


@pytest.mark.parametrize(("seconds", "refused"), [("300", False), ("10", True)])
def test_a_run_without_an_agent_refuses_what_would_change_nothing_and_takes_a_saved_default(
    seconds: str, refused: bool
) -> None:
    options = ["--env", "gsm8k", "--reward", "proximity", "--set", f"rollout.agent_seconds={seconds}", "--dry-run"]
    done = CliRunner().invoke(cli, ["run", *options])
    assert ("the run has no agent" in f"{done.output}{done.exception}") == refused, done.output
