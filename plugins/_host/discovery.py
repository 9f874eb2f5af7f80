"""Chooses which installed entry points of the group "grpo" a host loads, and in which order, without importing them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from grpo.plugins._host.entry_points import Entry, declared
from grpo.plugins.errors import UsageError, did_you_mean
from grpo.plugins.hookspecs import ENTRY_POINT_GROUP

PIN_VARIABLE = "GRPO_PLUGINS"
BUILT_IN = "grpo-kit"
"""The distribution of the built-in plugins, whose names win."""
ALWAYS = ("losses", "advantages", "agents")
"""Its entry points that GRPO_PLUGINS does not hide."""


def normalized(distribution: str) -> str:
    """Returns the name in the one spelling that the packaging rules (PEP 503) treat as equal."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def installed_entries() -> tuple[Entry, ...]:
    """Returns the entries that GRPO_PLUGINS keeps, ours first, then by distribution and name. Raises UsageError."""
    entries_by_name: dict[str, list[Entry]] = {}
    for entries in declared(ENTRY_POINT_GROUP):
        # A distribution that is found twice counts where it comes first on the path, as its modules do.
        entries_by_name.setdefault(normalized(entries[0].distribution), entries)
    ordered = [
        entry
        for name in sorted(entries_by_name, key=lambda name: (name != BUILT_IN, name))
        for entry in entries_by_name[name]
    ]
    return pinned(ordered, os.environ.get(PIN_VARIABLE, ""))


def pinned(entries: Sequence[Entry], pins: str) -> tuple[Entry, ...]:
    """Keeps the entries that a comma-separated list names by entry point, distribution, or "distribution/entry".

    An empty list keeps all. The built-in losses, advantages and agents always stay. Raises UsageError for an unknown
    name.
    """
    names = [name.strip() for name in pins.split(",") if name.strip()]
    if not names:
        return tuple(entries)
    for name in names:
        if not any(_matches(entry, name) for entry in entries):
            known = sorted({known for entry in entries for known in (entry.name, entry.distribution)})
            raise UsageError(
                f"{PIN_VARIABLE} names '{name}', which is not an installed entry point or distribution."
                f"{did_you_mean(name, known)} Installed: {', '.join(known) or 'none'}. "
                f"Change or unset {PIN_VARIABLE}."
            )
    kept = [*names, *(f"{BUILT_IN}/{name}" for name in ALWAYS)]
    return tuple(entry for entry in entries if any(_matches(entry, name) for name in kept))


def _matches(entry: Entry, name: str) -> bool:
    distribution, slash, point = name.rpartition("/")
    if slash:
        return normalized(distribution) == normalized(entry.distribution) and point == entry.name
    return name == entry.name or normalized(name) == normalized(entry.distribution)
