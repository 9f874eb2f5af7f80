"""Runs the commands of agents without a shell of their own, and provides a default system message."""

from __future__ import annotations

from grpo.plugins.agents import AgentTask

SYSTEM = "You work in a shell. Run commands with the tool, look at what they print, and then answer."
_LONGEST = 10_000
_SECONDS = 120.0


def system_of(task: AgentTask) -> str:
    """Returns the system message of a task, or a short one where it has none."""
    return task.system or SYSTEM


def run_command(command: str) -> str:
    """Runs a bash command and returns its output.

    Args:
        command: the command.
    """
    import subprocess

    try:
        ended = subprocess.run(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"The command was ended after {_SECONDS:g} seconds."
    text = ended.stdout.decode(errors="replace")
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n... {len(text) - _LONGEST} characters left out ...\n{text[-_LONGEST // 2 :]}"
    return text if ended.returncode == 0 else f"{text}\nexit code {ended.returncode}"
