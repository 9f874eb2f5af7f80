"""Provides the session cloud: machines of a cloud that Harbor knows, such as Daytona, E2B, Modal or Runloop.

Harbor needs Python 3.12 and many packages, so it runs in a process and a Python of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from grpo import Session, SessionError, SessionJob, SessionPool, SessionSpec, hookimpl, session
from grpo_session_cloud.link import Link
from grpo_session_cloud.machine import CAPABILITIES, Machine

grpo_contract = 1


class CloudPool:
    """A pool that opens machines of one provider, by one worker."""

    def __init__(self, provider: str, python: str, image: str, options: Mapping[str, Any]) -> None:
        self._link = Link(python)
        self._provider, self._image, self._options = provider, image, dict(options)
        self._numbers = itertools.count()

    def open(self, job: SessionJob) -> Session:
        """Opens a session; a job that asks for `reach` or `shared` is refused."""
        if job.reach or job.shared:
            raise SessionError(
                "session cloud: a machine of a cloud reaches no address of this machine and shares no files with it, "
                "so agents cannot run inside it. Use the session local or docker."
            )
        return Machine(self._link, next(self._numbers), job, self._provider, self._image, self._options)

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what its machines can do."""
        return CAPABILITIES

    def close(self) -> None:
        """Removes every machine."""
        self._link.close()

    @classmethod
    def reap(cls) -> int:
        """Finds nothing: a worker whose owner is gone removes its machines itself."""
        return 0


@session(version=1)
def cloud(
    *,
    provider: str = "daytona",
    python: str = "python3.12",
    image: str = "debian:bookworm-slim",
    options: Mapping[str, Any] | None = None,
) -> SessionPool:
    """Opens machines of a cloud, by Harbor's adapters.

    Args:
        provider: Harbor's name of the cloud, or FILE.py:CLASS, an environment for Harbor of your own.
        python: a Python, 3.12 or newer, that has `harbor`.
        image: what a machine begins with where a task names none; it has GNU coreutils and util-linux, as Debian has.
        options: what the provider's adapter takes, as JSON.

    Raises:
        SandboxUnavailable: that Python or `harbor` is missing.
    """
    return CloudPool(provider, python, image, options or {})


@hookimpl
def grpo_sessions() -> list[SessionSpec]:
    """Offers the session to grpo."""
    return [cloud]
