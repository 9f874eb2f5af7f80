"""Agent programs from npm play an episode against the gateway; what comes back is what was sampled.

They are looked up on PATH:

    npm install --prefix ~/agents @anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 opencode-ai@1.18.33 \
        @qwen-code/qwen-code@0.15.10
    PATH=~/agents/node_modules/.bin:$PATH make nightly ARGS=tests/core/gateway/test_programs.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from patience import RUN
from scripted_desk import KEY, MODEL, ScriptedDesk, said, served

from grpo.core.gateway.conversation import Ask, ChatTurn, Refused, Reply, ToolUse

pytestmark = pytest.mark.nightly

SYSTEM, TASK = "You are an agent.", "do the task"


@dataclass(frozen=True)
class Program:
    """How a program is started, with the smallest requests.

    Attributes:
        name: of its executable.
        tool, argument: its tool for commands, and the argument that is the command.
        more: other arguments that the tool wants.
        start: writes its settings into a folder, and returns its command line and environment.
    """

    name: str
    tool: str
    argument: str
    start: Callable[[str, Path], tuple[list[str], dict[str, str]]]
    more: dict[str, Any] = field(default_factory=dict)

    def call(self, command: str) -> ToolUse:
        """Returns a call that runs a command."""
        return ToolUse(self.tool, {self.argument: command, **self.more})


def claude(url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--bare", "--system-prompt", SYSTEM, "--tools", "Bash", "--dangerously-skip-permissions"]
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1"}
    return ["-p", TASK, "--model", MODEL, *flags], {**env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def codex(url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    (home / "instructions.md").write_text(SYSTEM)
    settings = {
        "model_provider": "gateway",
        "model_providers.gateway": f'{{name="gateway",base_url="{url}/v1",env_key="KEY",wire_api="responses"}}',
        "model_instructions_file": str(home / "instructions.md"),
        "web_search": "disabled",
        "features.multi_agent": "false",
        "features.goals": "false",
    }
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    flags += ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", "-m", MODEL, *flags, TASK], {"KEY": KEY}


def opencode(url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    options = {"baseURL": f"{url}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "gateway", "options": options, "models": {MODEL: {}}}
    agent = {"mode": "primary", "prompt": SYSTEM, "tools": {"*": False, "bash": True}}
    settings = {
        "model": f"gateway/{MODEL}",
        "permission": {"bash": "allow"},
        "provider": {"gateway": provider},
        "agent": {"small": agent},
        "autoupdate": False,
        "share": "disabled",
    }
    (home / "work" / "opencode.json").write_text(json.dumps(settings))
    return ["run", "--agent", "small", "--title", "x", TASK], {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


def qwen(url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    flags = ["--auth-type", "openai", "--bare", "--system-prompt", SYSTEM, "--approval-mode", "yolo"]
    env = {"OPENAI_BASE_URL": f"{url}/r/{KEY}/v1", "OPENAI_API_KEY": "dummy", "OPENAI_MODEL": MODEL}
    return [*flags, "-p", TASK], env


PROGRAMS = [
    Program("claude", "Bash", "command", claude, {"description": "x"}),
    Program("codex", "exec_command", "cmd", codex),
    Program("opencode", "bash", "command", opencode, {"description": "x"}),
    Program("qwen", "run_shell_command", "command", qwen, {"description": "x", "is_background": False}),
]


def played(program: Program, desk: ScriptedDesk, folder: Path, pause: float = 5.0) -> subprocess.CompletedProcess[str]:
    """Plays an episode."""
    executable = shutil.which(program.name)
    if executable is None:
        pytest.skip(f"needs {program.name} of npm on PATH, as this module's docstring says")
    (folder / "work").mkdir()
    with served(desk, pause) as url:
        arguments, env = program.start(url, folder)
        return subprocess.run(
            [executable, *arguments],
            cwd=folder / "work",
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN,
            check=False,
        )


def sampled(ask: Ask, count: int) -> list[ChatTurn]:
    """Returns the last messages of the assistant: some programs begin with one of their own."""
    return [turn for turn in ask.messages if turn.role == "assistant"][-count:]


def playing(replies: list[Reply]) -> Callable[[Ask], Reply]:
    """Answers the n-th request after the first with tools with the n-th reply; some programs ask for a title, too."""
    left = iter(replies)
    return lambda ask: next(left) if ask.tools else said("A title")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_sends_back_what_was_sampled(program: Program, tmp_path: Path) -> None:
    """Text beside three calls of which the first takes longest, spellings that programs change, a call that fails."""
    commands = ["sleep 1; echo 'é one'", 'echo "two" | cat', "printf 'three\\n\\n'"]
    replies = [
        said("Let me look.", *(program.call(command) for command in commands)),
        said("", program.call("false")),
        said("", program.call("echo four > made; cat made")),
        said("All done: ünï."),
    ]
    desk = ScriptedDesk([playing(replies)])
    done = played(program, desk, tmp_path)
    assert "All done: ünï." in done.stdout, done.stdout + done.stderr
    asks = [ask for _, ask in desk.asked if ask.tools]
    assert len(asks) == 4
    turns = [reply.turn for reply in replies]
    for number, ask in enumerate(asks[1:], start=1):
        assert sampled(ask, number) == turns[:number]
        assert ask.messages[: len(asks[number - 1].messages)] == asks[number - 1].messages
        assert ask.tools == asks[0].tools
        assert ask.thread == asks[0].thread
    results = [turn.text for turn in asks[-1].messages if turn.role == "tool"]
    assert len(results) == 5
    for expected, result in zip(["one", "two", "three", "", "four"], results, strict=True):
        assert expected in result
    assert (tmp_path / "work" / "made").read_text() == "four\n"
    assert all(answer.deliveries == 1 for answer in desk.answers)
    assert {key for key, _ in desk.asked} == {KEY}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_waits_for_a_slow_answer(program: Program, tmp_path: Path) -> None:
    desk = ScriptedDesk([playing([said("", program.call("echo one")), said("All done.")])], delay=2.0)
    done = played(program, desk, tmp_path, pause=0.1)
    assert "All done." in done.stdout, done.stdout + done.stderr
    assert len([ask for _, ask in desk.asked if ask.tools]) == 2
    assert desk.cancelled == 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_gives_up_where_its_episode_has_ended(program: Program, tmp_path: Path) -> None:
    desk = ScriptedDesk([Refused(400, "The episode has ended.", "episode_ended")])
    done = played(program, desk, tmp_path)
    assert "The episode has ended." in done.stdout + done.stderr
    assert len(desk.asked) <= 2
