"""Defines what is left of an agent program when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpo.plugins.agents import Access, AgentTask

__all__ = ["Access", "AgentExit", "AgentTask"]


@dataclass(frozen=True, slots=True)
class AgentExit:
    """What is left of an agent when every process that it started is dead.

    Attributes:
        code: its exit status, negative for a signal; None where it did not start.
        timed_out: it was ended by its time limit.
        seconds: from start to end.
        answer: what a Python agent returned, or what a command wrote to stdout where its plugin says that this is the
            answer; None: the answer is the last message of the policy.
        stdout, stderr: the last characters of each.
        files: path in the working directory to text, of those that the agent made or changed (None: it deleted it);
            within limits of number and size.
        files_omitted: how many files were over these limits.
        problem: why it did not start, or broke; "" otherwise.
        outside: the problem came from where nothing that the agent ran can reach, so that no policy can have chosen it.
    """

    code: int | None
    timed_out: bool
    seconds: float
    answer: str | None = None
    stdout: str = ""
    stderr: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)
    files_omitted: int = 0
    problem: str = ""
    outside: bool = False
