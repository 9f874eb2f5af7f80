"""Finds the installed entry points of the group "grpo", without importing what they name.

In: the metadata of installed distributions and the variable GRPO_PLUGINS. Out: entries, each with its own `load`.
Two distributions may use the same entry-point name; both are found. GRPO_PLUGINS=a,b keeps the named entry points or
distributions only, so that a test sees the same set on every machine.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo.plugins.errors import UsageError, did_you_mean
from grpo.plugins.hookspecs import ENTRY_POINT_GROUP

PIN_VARIABLE = "GRPO_PLUGINS"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry point.

    Attributes:
        distribution: the distribution that declares it, for example "grpo-kit".
        distribution_version: its version.
        name: the name in the entry-point group.
        load: imports and returns the module (or object) with the hooks.
    """

    distribution: str
    distribution_version: str
    name: str
    load: Callable[[], object]


def normalized(distribution: str) -> str:
    """Returns the name in the one spelling that the packaging rules (PEP 503) treat as equal."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def installed_entries() -> tuple[Entry, ...]:
    """Returns the entries that are installed and that GRPO_PLUGINS keeps, ours first, then by distribution and name.

    Raises:
        UsageError: GRPO_PLUGINS names something that is not installed.
    """
    entries: dict[tuple[str, str], Entry] = {}
    for distribution in importlib.metadata.distributions():
        for point in distribution.entry_points:
            if point.group == ENTRY_POINT_GROUP:
                name = distribution.metadata["Name"]
                # The first distribution on the path is the one whose modules are imported.
                entries.setdefault(
                    (normalized(name), point.name), Entry(name, distribution.version, point.name, point.load)
                )
    ordered = [entries[key] for key in sorted(entries, key=lambda key: (key[0] != "grpo-kit", key))]
    return pinned(ordered, os.environ.get(PIN_VARIABLE, ""))


def pinned(entries: Sequence[Entry], pins: str) -> tuple[Entry, ...]:
    """Keeps the entries that a comma-separated list names by entry point, distribution, or "distribution/entry".

    An empty list keeps all.

    Raises:
        UsageError: a name that no entry has.
    """
    names = [name.strip() for name in pins.split(",") if name.strip()]
    if not names:
        return tuple(entries)
    for name in names:
        if not any(_matches(entry, name) for entry in entries):
            known = sorted({known for entry in entries for known in (entry.name, entry.distribution)})
            raise UsageError(
                f"{PIN_VARIABLE} names '{name}', which is no installed entry point or distribution."
                f"{did_you_mean(name, known)} Installed: {', '.join(known) or 'none'}. "
                f"Change or unset {PIN_VARIABLE}."
            )
    return tuple(entry for entry in entries if any(_matches(entry, name) for name in names))


def _matches(entry: Entry, name: str) -> bool:
    distribution, slash, point = name.rpartition("/")
    if slash:
        return normalized(distribution) == normalized(entry.distribution) and point == entry.name
    return name == entry.name or normalized(name) == normalized(entry.distribution)
