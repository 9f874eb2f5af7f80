"""Limits the memory of all processes of a sandbox together by control groups, where this process may make them."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

_ROOT = "/sys/fs/cgroup"
_NAME = re.compile(r"grpo-sandbox-(\d+)-\d+")
_serial = itertools.count()
_PAUSES = (0.0005, 0.001, 0.002, 0.004, *(0.01,) * 50)  # seconds between attempts to remove a group


class Group:
    """The control groups of one sandbox: one folder in version 2, one for each controller in version 1."""

    def __init__(self, folders: dict[str, str]) -> None:
        name = f"grpo-sandbox-{os.getpid()}-{next(_serial)}"
        self._limit = -1
        self._last_events = (0, 0)
        self._paths = {controller: f"{folder}/{name}" for controller, folder in folders.items()}
        for path in self.paths():
            os.mkdir(path)

    def paths(self) -> list[str]:
        """Returns the folders of the group."""
        return sorted(set(self._paths.values()))

    def entries(self) -> list[str]:
        """Returns the files to which a process of one thread writes "0" to join.

        In version 1 these are `tasks`: moving a thread is quick, moving a process waits for all processors.
        """
        name = "cgroup.procs" if "cpu.stat" in self._paths else "tasks"
        return [f"{path}/{name}" for path in self.paths()]

    def clock(self) -> str:
        """Returns the file with the processor time of all processes of the group, or ""."""
        if "cpu.stat" in self._paths:
            return f"{self._paths['cpu.stat']}/cpu.stat"
        return f"{self._paths['cpuacct']}/cpuacct.usage" if "cpuacct" in self._paths else ""

    def limit(self, most: int) -> None:
        """Sets how many bytes all processes together may use."""
        if most == self._limit:
            return
        folder = self._paths["memory"]
        if "cpu.stat" in self._paths:
            _write(f"{folder}/memory.max", most)
            with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
                _write(f"{folder}/memory.swap.max", 0)
        else:
            _write(f"{folder}/memory.limit_in_bytes", most)
        self._limit = most

    def why_ended(self) -> Literal["", "limit", "machine"]:
        """Says why the kernel ended a process since it was last asked: "limit" (the group's), "machine", or ""."""
        (ended, full), self._last_events = self._last_events, self._events()
        if self._last_events[0] == ended:
            return ""
        return "limit" if self._last_events[1] > full else "machine"

    def _events(self) -> tuple[int, int]:
        """How many processes the kernel has ended, and how often the group was at its limit."""
        folder = self._paths["memory"]
        try:
            if "cpu.stat" in self._paths:
                counts = _counts(f"{folder}/memory.events")
                return counts["oom_kill"], counts["oom"]
            with open(f"{folder}/memory.failcnt", encoding="ascii") as failures:
                return _counts(f"{folder}/memory.oom_control").get("oom_kill", 0), int(failures.read())
        except OSError:
            return self._last_events

    def remove(self) -> None:
        """Removes the group, whose processes have just been ended."""
        for path in self.paths():
            _remove(path)


@lru_cache(maxsize=1)
def places() -> dict[str, str]:
    """Returns the folders in which groups can be made, by controller; empty where there are none."""
    own = _own_groups()
    if "memory" in own:
        folders: dict[str, str] = {name: own[name] for name in ("memory", "cpuacct") if name in own}
        return folders if all(_can_make(folder) for folder in folders.values()) else {}
    if "" not in own:
        return {}
    for folder in (own[""], os.path.dirname(own[""])):
        if folder.startswith(_ROOT) and _has_memory(folder) and _can_make(folder):
            return {"memory": folder, "cpu.stat": folder}
    return {}


def reap(process: int = 0) -> int:
    """Removes the groups of processes that are gone, and of one more where it is named; returns how many."""
    count = 0
    for folder in set(places().values()):
        for name in os.listdir(folder):
            # One of another pid namespace may be mistaken for a dead one; while it has processes it stays.
            made_by = _NAME.fullmatch(name)
            if made_by and (int(made_by[1]) == process or not os.path.exists(f"/proc/{made_by[1]}")):
                count += _remove(f"{folder}/{name}", pauses=(0.0,))
    return count


def _own_groups() -> dict[str, str]:
    """The folder of this process in each mounted hierarchy; version 2 under the name ""."""
    mounted: dict[str, tuple[str, str]] = {}
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                kind, _, options = after.split()[:3]
                fields = before.split()
                if kind == "cgroup2":
                    mounted.setdefault("", (fields[3], fields[4]))
                elif kind == "cgroup":
                    for name in options.split(","):
                        mounted.setdefault(name, (fields[3], fields[4]))
        with open("/proc/self/cgroup", encoding="utf-8") as groups:
            lines = [line.rstrip("\n").split(":", 2) for line in groups]
    except OSError:
        return {}
    by_controller = {}
    for _, names, path in lines:
        for name in names.split(","):
            if name in mounted:
                root, point = mounted[name]
                inside = path[len(root) :] if root != "/" and path.startswith(root) else path
                by_controller[name] = f"{point}/{inside}".replace("//", "/").rstrip("/")
    return by_controller


def _counts(path: str) -> dict[str, int]:
    with open(path, encoding="ascii") as lines:
        return {name: int(count) for name, count in (line.split() for line in lines)}


def _has_memory(folder: str) -> bool:
    try:
        with open(f"{folder}/cgroup.subtree_control", encoding="ascii") as control:
            return "memory" in control.read().split()
    except OSError:
        return False


def _can_make(folder: str) -> bool:
    path = f"{folder}/grpo-sandbox-{os.getpid()}-{next(_serial)}"
    try:
        os.mkdir(path)
        writable = os.access(f"{path}/cgroup.procs", os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)
        os.rmdir(path)
    except OSError:
        return False
    return writable


def _remove(path: str, pauses: Sequence[float] = _PAUSES) -> int:
    for pause in pauses:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return 0
        except OSError:
            time.sleep(pause)  # its processes are still ending
        else:
            return 1
    return 0


def _write(path: str, value: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))
