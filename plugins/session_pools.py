"""Keeps one pool of sessions for each SPEC and process, shared by every environment that asks for it."""

from __future__ import annotations

from grpo.plugins._spec_pools import SpecPools
from grpo.plugins.host import Host
from grpo.plugins.session import SessionPool

_pools: SpecPools[SessionPool] = SpecPools()


def sessions_of(spec: str = "local") -> SessionPool:
    """Returns this process's pool for a SPEC.

    Raises:
        UsageError: the SPEC names no session or sets an option that it does not have.
        SandboxUnavailable: this machine cannot run it; the message says what is missing and what to do.
    """
    return _pools.of(spec, lambda: Host.discover().session(spec).make())


def close_sessions() -> None:
    """Closes the pools of this process; the next call of `sessions_of` makes new ones."""
    _pools.close()
