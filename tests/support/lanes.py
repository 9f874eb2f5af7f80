"""Decides which tests a lane runs, which files it has to collect for that, and which tests share a process.

    fast      neither trains, serves, installs nor takes long
    core      the long tests that guard a promise of the project; `make test` runs them after the fast ones
    long      all that is not fast
    nightly   what takes many minutes, and is in no other lane
    a marker  the tests with that marker

Several lanes are joined by commas: `fast,core` is what `make test` runs, `browser,site` the tests of the pages.
A lane collects lazily: a file in which no marker of the lane is written is not imported.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# A test with one of these markers is in the long lane.
LONG = (
    "slow",
    "core",
    "install",
    "reasoning_gym",
    "deepspeed",
    "ray",
    "trackers",
    "mcp",
    "browser",
    "site",
    "vllm",
    "triton",
    "real_model",
    "nightly",
)
LANES = ("fast", "long", *LONG)


def lane(text: str) -> tuple[str, ...]:
    """Reads the value of `--lane`: the names of lanes, of which each adds its tests.

    Raises:
        pytest.UsageError: a name is no lane.
    """
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in LANES]:
        raise pytest.UsageError(f"no lane {', '.join(unknown)}; there are: {', '.join(LANES)}")
    return names


def is_in(markers: set[str], names: tuple[str, ...]) -> bool:
    """Returns whether one of these lanes runs a test with these markers."""
    long = markers & {*LONG}
    if "nightly" in long:
        return "nightly" in names
    return ("long" if long else "fast") in names or not long.isdisjoint(names)


def is_collected(file: Path, names: tuple[str, ...]) -> bool:
    """Returns whether one of these lanes needs a file.

    A marker is written as `mark.NAME`, or is in a list that several modules share, whose name begins with REAL_. The
    fast lane needs all files but those whose every test is marked, by one line `pytestmark = ...`.
    """
    if not (file.name.startswith("test_") or file.suffix == ".md"):
        return True
    text = file.read_text(encoding="utf-8")
    whole = re.findall(r"^pytestmark = .*", text, re.MULTILINE)
    if "fast" in names and not any(_pattern(LONG).search(line) for line in whole):
        return True
    return _pattern(LONG if "long" in names else names).search(text) is not None


@cache
def _pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\bmark\.(?:{'|'.join(markers)})\b|\bREAL_[A-Z]+\b")


def unit_of(nodeid: str, root: Path) -> str:
    """Returns what runs in one process: the file of a test that has fixtures of its module, so that they are made once.

    Else a test is a unit alone.
    """
    path = nodeid.partition("::")[0]
    return path if _shares_fixtures(root / path) else nodeid


@cache
def _shares_fixtures(file: Path) -> bool:
    return re.search(r'^@pytest\.fixture\(.*scope="module"', file.read_text(encoding="utf-8"), re.MULTILINE) is not None


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out units one by one; `--dist loadgroup` would, but finds no groups with pytest 9.2 (xdist 3.8)."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, self.config.rootpath)

    def schedule(self) -> None:
        """Hands out units; also to a process that takes the place of one that crashed, and that xdist gives one test.

        A process begins a test when it has the one after it.
        """
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Takes a process away; returns the test that it crashed in, which xdist would begin once more elsewhere."""
        units = self.assigned_work[node].values()
        crashed = next((test for unit in units for test, done in unit.items() if not done), None)
        for unit in units:
            if crashed in unit:
                unit[crashed] = True
        super().remove_node(node)
        return crashed


def longest_first(items: list[pytest.Item], seconds: dict[str, float]) -> list[pytest.Item]:
    """Orders tests so that the units that took longest begin first, and no process is left with one at the end.

    Args:
        items: tests, in the order of collection.
        seconds: how long each test function took, all its cases together; one that is missing counts nothing.
    """
    cases = Counter(function_of(item.nodeid) for item in items)
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        units.setdefault(unit_of(item.nodeid, item.config.rootpath), []).append(item)

    def total(unit: list[pytest.Item]) -> float:
        names = [function_of(item.nodeid) for item in unit]
        return sum(seconds.get(name, 0.0) / cases[name] for name in names)

    return [item for unit in sorted(units.values(), key=total, reverse=True) for item in unit]


def function_of(nodeid: str) -> str:
    """Returns the test function of a test's id: the id without its parameters."""
    return nodeid.partition("[")[0]
