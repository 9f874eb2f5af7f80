"""Defines what an agent program is given for an episode, and what is left of it when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What an episode asks of an agent.

    Attributes:
        instruction: the task, as the environment's user message has it.
        system: the environment's system message, or None.
        files: path in the working directory to its text; they are there before the agent starts.
        row: the dataset row, without columns that rewards alone may see; values that JSON has.
    """

    instruction: str
    system: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Access:
    """How an agent reaches the policy.

    Attributes:
        url: of the gateway, `http://127.0.0.1:PORT`; the APIs stand at `/v1/...` and at `/r/KEY/v1/...`.
        key: of the episode, which is all that it opens.
        model: the name to ask for.
    """

    url: str
    key: str
    model: str


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
        problem: why it did not start, or broke in a way that says nothing about the policy; "" otherwise.
    """

    code: int | None
    timed_out: bool
    seconds: float
    answer: str | None = None
    stdout: str = ""
    stderr: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)
    problem: str = ""
