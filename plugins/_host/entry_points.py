"""Reads the entry points of installed distributions, mostly without `importlib.metadata`, whose import is slow.

`entry_points.txt` and the head of `METADATA` are read as plain lines. Where they are not as plain as build tools write
them, or there are archives, eggs or other finders, `importlib.metadata` reads all.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from grpo.plugins._pattern import lazy_pattern

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_SECTION = lazy_pattern(r"\[([^\[\]]+)\]")
_POINT = lazy_pattern(r"([^\s=\[\]#;][^=]*?)\s*=\s*([\w.]+)(?:\s*:\s*([\w.]+))?")
_HEADER = lazy_pattern(r"(Name|Version): *(\S+) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry point."""

    distribution: str  # the distribution that declares it, for example "grpo-kit"
    distribution_version: str  # its version
    name: str  # the name in the entry-point group
    load: Callable[[], object]  # imports and returns the module (or object) with the hooks
    module: str = ""  # what it imports, "" where that is not known
    attribute: str = ""  # where the object with the hooks is in it, "" for the module itself
    fault: str = ""  # why it must not be loaded in this process, or ""


def entry_of(distribution: str, version: str, name: str, module: str, attribute: str) -> Entry:
    """Returns the entry that imports a module and takes an object out of it."""
    return Entry(distribution, version, name, functools.partial(_loaded, module, attribute), module, attribute)


def declared(group: str) -> Iterator[list[Entry]]:
    """Yields the entries of each distribution by name; if they cannot be read, one that fails to load."""
    plain = _declared_plainly(group)
    yield from _from_metadata(group) if plain is None else plain


def _declared_plainly(group: str) -> list[list[Entry]] | None:
    """Returns what plain text declares, or None where there is more than plain text."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return None
    distributions = []
    for place in map(os.fspath, sys.path):
        if place.lower().endswith(".egg") or os.path.isfile(place):
            return None
        try:
            names = os.listdir(place or ".")
        except OSError:
            continue
        for name in names:
            folder = os.path.join(place, name)
            text = _text(folder, "entry_points.txt") if name.lower().endswith((".dist-info", ".egg-info")) else ""
            if f"[{group}]" in text:
                entries = _plain_entries(folder, text, group)
                if entries is None:
                    return None
                distributions += [entries] if entries else []
    return distributions


def _plain_entries(folder: str, text: str, group: str) -> list[Entry] | None:
    about: dict[str, str] = {}
    for line in (_text(folder, "METADATA") or _text(folder, "PKG-INFO")).split("\n"):
        if not line:  # the end of the head
            break
        if header := _HEADER.fullmatch(line):
            about.setdefault(header[1].lower(), header[2])
    if len(about) < 2:
        return None
    section, entries = "", []
    for line in filter(None, map(str.strip, text.split("\n"))):
        if head := _SECTION.fullmatch(line):
            section = head[1]
        elif (point := _POINT.fullmatch(line)) and section:
            if section == group:
                entries.append(entry_of(about["name"], about["version"], point[1], point[2], point[3] or ""))
        elif not line.startswith("#"):
            return None
    return sorted(entries, key=lambda entry: entry.name)


def _loaded(module: str, attribute: str) -> object:
    target: object = importlib.import_module(module)
    try:
        return functools.reduce(getattr, attribute.split("."), target) if attribute else target
    except AttributeError:
        raise ImportError(
            f"the entry point names '{module}:{attribute}', and that module has no '{attribute}'"
        ) from None


def _from_metadata(group: str) -> Iterator[list[Entry]]:
    from importlib.metadata import distributions

    for distribution in distributions():
        if f"[{group}]" not in (distribution.read_text("entry_points.txt") or ""):
            continue
        about = distribution.metadata
        name = ("Name" in about and about["Name"]) or "(unnamed)"
        version = ("Version" in about and about["Version"]) or ""
        try:
            points = [point for point in distribution.entry_points if point.group == group]
        except Exception as error:
            yield [Entry(name, version, "entry_points.txt", functools.partial(_refused, error))]
            continue
        if points:
            by_name = sorted(points, key=lambda point: point.name)
            yield [Entry(name, version, p.name, p.load, *_target(p)) for p in by_name]


def _target(point: EntryPoint) -> tuple[str, str]:
    try:
        return point.module, point.attr
    except (AttributeError, AssertionError):  # how `importlib.metadata` says so, up to Python 3.12 and from 3.13 on
        return "", ""


def _refused(error: Exception) -> object:
    raise ImportError(f"the entry points of the distribution cannot be read ({error})") from error


def _text(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
        return ""
