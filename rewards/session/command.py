"""Says which words can be a command, and which variables every command of a session has beside PATH."""

from __future__ import annotations

from collections.abc import Sequence

from grpo.plugins.session import HOME, SessionJob


def unfit(argv: Sequence[str]) -> str:
    """Returns why words cannot be a program and its arguments, or ""."""
    if not argv:
        return "no program is named"
    return "an argument has a zero byte" if any("\0" in word for word in argv) else ""


def environment_of(job: SessionJob) -> dict[str, str]:
    """Returns the variables of every command, without PATH unless the job names it."""
    return {"HOME": HOME, "LANG": "C.UTF-8", "TMPDIR": "/tmp", "USER": "agent", **job.environment}
