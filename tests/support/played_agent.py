"""Runs agents as a run does and looks for what they left behind."""

from __future__ import annotations

import os
import queue
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo.core.agents.program import AgentExit
from grpo.core.agents.runner import AgentRunner
from grpo.plugins.agents import Access, AgentTask
from grpo.plugins.host import Host

TASK = AgentTask("say hello", files={"notes/first.txt": "one\n", "second.txt": "two\n"})


class Played:
    """A runner, and the ends that it hands over.

    Attributes:
        runner: the runner.
        key: of all its episodes.
    """

    def __init__(self, spec: str, seconds: float, namespaces: bool | None) -> None:
        self.key = f"key-{secrets.token_hex(8)}"
        self._ends: queue.SimpleQueue[tuple[int, AgentExit]] = queue.SimpleQueue()
        agent = Host.discover().agent(spec)
        self.runner = AgentRunner(
            agent, seconds, lambda number, left: self._ends.put((number, left)), namespaces=namespaces
        )

    def start(self, number: int = 0, task: AgentTask = TASK) -> None:
        """Starts an episode."""
        self.runner.start(number, task, Access("http://127.0.0.1:9", self.key, "policy"))

    def end(self) -> tuple[int, AgentExit]:
        """Returns the next end, and its episode."""
        return self._ends.get(timeout=60)

    def running(self) -> list[int]:
        """Returns the processes that have the key in their environment."""
        return [process for process in _processes() if self.key in _text(process, "environ")]


@contextmanager
def played(spec: str, seconds: float = 60.0, namespaces: bool | None = None) -> Iterator[Played]:
    """Yields a runner of an agent; afterwards no process of it may run, and nothing be left on the disk."""
    before, children = tempfile.tempdir, {*_children()}
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            agents = Played(spec, seconds, namespaces)
            try:
                yield agents
            finally:
                agents.runner.close()
            assert agents.running() == []
            assert {*_children()} <= children
            assert list(Path(folder).iterdir()) == []
        finally:
            tempfile.tempdir = before


def play(spec: str, task: AgentTask = TASK, *, seconds: float = 60.0, namespaces: bool | None = None) -> AgentExit:
    """Plays one episode, after which no process of it may run."""
    with played(spec, seconds, namespaces) as agents:
        agents.start(0, task)
        number, left = agents.end()
        assert number == 0
        assert agents.running() == []
        return left


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]


def _text(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def _children() -> list[int]:
    own = str(os.getpid())
    return [process for process in _processes() if _text(process, "stat").rpartition(")")[2].split()[1:2] == [own]]
