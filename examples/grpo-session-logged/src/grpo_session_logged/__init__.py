"""Provides the session logged: the machines of another session, with a log of the commands that ran in them.

Put a machine of your own in the place of the inner session: a remote worker, a container
engine, a cloud. A machine that is gone raises `SessionLost`, which is a failure and never a score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo import Exit, Host, Session, SessionJob, SessionPool, SessionSpec, hookimpl, session

grpo_contract = 1


class LoggedSession:
    """A session that notes its commands and leaves everything else to another one."""

    def __init__(self, inner: Session, log: list[str]) -> None:
        self._inner, self._log = inner, log
        self.directory, self.home = inner.directory, inner.home

    def run(self, argv: Any, **settings: Any) -> Exit:
        """Runs a command and notes how it ended."""
        left = self._inner.run(argv, **settings)
        self._log.append(f"{left.code} {' '.join(argv)}")
        return left

    def fork(self, snapshot: str) -> Session:
        """Returns a session that begins with the files of a snapshot, and writes to the same log."""
        return LoggedSession(self._inner.fork(snapshot), self._log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class LoggedPool:
    """A pool that opens sessions of another one."""

    def __init__(self, inner: SessionPool) -> None:
        self._inner = inner
        self.log: list[str] = []

    def open(self, job: SessionJob) -> Session:
        """Opens a session."""
        return LoggedSession(self._inner.open(job), self.log)

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what the inner sessions can do."""
        return self._inner.capabilities()

    def close(self) -> None:
        """Closes every session."""
        self._inner.close()

    @classmethod
    def reap(cls) -> int:
        """Leaves nothing of its own behind; the inner session reaps what it made."""
        return 0


@session(version=1)
def logged(*, inner: str = "local") -> SessionPool:
    """Opens sessions of another kind, and logs their commands.

    Args:
        inner: the SPEC of the other session.

    Raises:
        UsageError: the SPEC names no session.
        SandboxUnavailable: it cannot run here.
    """
    return LoggedPool(Host.discover().session(inner).make())


@hookimpl
def grpo_sessions() -> list[SessionSpec]:
    """Offers the session to grpo."""
    return [logged]
