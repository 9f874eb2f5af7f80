"""Binds a plugin that Python code names in any supported way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from grpo.plugins.host import Host

T = TypeVar("T")


def bound_of(plugin: Any, made: type[T]) -> T:
    """Returns a plugin as it is bound.

    `plugin`: a SPEC or a table, a spec, whose options have their defaults, or a bound plugin. `made`: the class of the
    kind that is wanted, such as `BoundReward`. Raises UsageError: a SPEC that names no plugin of that kind, or options
    that it does not take.
    """
    if isinstance(plugin, made):
        return plugin
    bind: Any = made
    if isinstance(plugin, str | Mapping):
        bind = getattr(Host.discover(), made.__name__.removeprefix("Bound").lower())
    limits = {"timeout": plugin.timeout} if hasattr(plugin, "timeout") else {}
    bound: T = bind(plugin, **limits)
    return bound
