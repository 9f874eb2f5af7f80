"""Defines what an agent plugin gets for an episode, and the command line that it may return."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

Protocol = Literal["chat", "responses", "messages"]
Answer = Literal["message", "stdout"]


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What an episode asks of an agent.

    Attributes:
        instruction: the task, as the environment's user message has it.
        system: the environment's system message, or None.
        files: path in the working directory to its text; they are there before the agent starts.
        directory: the working directory; what starts the agent fills it in.
        home: the agent's HOME, an empty folder; what starts the agent fills it in.
    """

    instruction: str
    system: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    home: str = ""

    @property
    def text(self) -> str:
        """The system message, if there is one, and the instruction as one text."""
        return f"{self.system}\n\n{self.instruction}" if self.system else self.instruction


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
class AgentCall:
    """What a program asked the policy in one request.

    Attributes:
        system: the system message, or None.
        text: the last message of the user, or "".
        tools: the names of the tools that it offered.
        thread: which of its conversations the program said that this is, or "".
    """

    system: str | None = None
    text: str = ""
    tools: Sequence[str] = ()
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start in the working directory of an episode.

    Attributes:
        argv: the program and its arguments.
        environment: variables beside those that every agent has.
        files: path to text, written before the program starts; a path is relative to the working directory, or begins
            with `~/` for the agent's HOME.
        stdin: what the program reads from its standard input.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""


def search_path() -> str:
    """Returns the PATH on which agents' programs are looked for: this Python's own folder comes first."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])  # noqa: PTH120


def package_of(program: Path) -> str:
    """Returns the folder of a program's own files: that of all its packages, of one that npm installed."""
    packages = [parent for parent in program.parents if parent.name == "node_modules"]
    return str(packages[-1] if packages else program.parent)
