"""Binds a plugin that Python code names in any supported way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from grpo.plugins.host import Host

T = TypeVar("T")


def bound_of(plugin: Any, made: type[T]) -> T:
    """Returns a SPEC, table, spec or bound plugin bound as `made`, such as `BoundReward`. Raises UsageError."""
    if isinstance(plugin, made):
        return plugin
    bind: Any = made
    if isinstance(plugin, str | Mapping):
        bind = getattr(Host.discover(), made.__name__.removeprefix("Bound").lower())
    limits = {"timeout": plugin.timeout} if hasattr(plugin, "timeout") else {}
    bound: T = bind(plugin, **limits)
    return bound
