"""Collects what the page writes regression cases with, from the locks of a run's plugins; no plugin is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grpo.core.record.versions import plugin_locks


def cases_of(versions: Any) -> dict[str, dict[str, Any]]:
    """Returns by reward what the page writes a `Case` with; a reward of whole completions has all columns."""
    return {lock["name"]: _case(lock) for outer in plugin_locks(versions).values() for lock in _parts(outer)}


def _parts(lock: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(lock, Mapping) and lock.get("kind") == "reward" and isinstance(lock.get("name"), str):
        yield lock
        components = lock.get("components")
        for component in components if isinstance(components, list) else ():
            yield from _parts(component)


def _case(lock: Mapping[str, Any]) -> dict[str, Any]:
    options, given, columns = lock.get("options"), _names(lock.get("given")), _names(lock.get("columns"))
    chosen = {name: options[name] for name in given or () if name in options} if isinstance(options, Mapping) else {}
    return {"columns": columns, "options": repr(chosen) if chosen else None, "grouped": lock.get("scope") == "group"}


def _names(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(name, str) for name in value) else None
