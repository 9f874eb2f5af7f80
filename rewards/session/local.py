"""Provides the session `local`: machines made of this one's system folders, in namespaces, without a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo.plugins.factory_decorators import session

if TYPE_CHECKING:
    from grpo.plugins.session import SessionPool


@session(version=1)
def local() -> SessionPool:
    """Opens sessions on this machine, in namespaces: its programs read-only, with files and processes of their own.

    Needs Linux that allows user namespaces. There is no network but 127.0.0.1 of the session. Files are kept in memory.
    Raises SandboxUnavailable: this machine does not allow it; the message says what is missing and what to do.
    """
    from grpo.rewards.session.pool import LocalPool

    return LocalPool()
