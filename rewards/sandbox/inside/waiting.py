"""Measures how long a program waited for a processor that was busy with others.

What its own other threads and children ran meanwhile is subtracted, so that no program can make itself wait. Of several
threads the one that waited longest counts. This module imports the standard library only.
"""

from __future__ import annotations

import os

PROCESSES = 6
"""The descriptor of the host's list of processes; no program has it."""

_LINE = 4096


def seconds(process: int, used: float) -> float:
    """Returns how long a process waited for others, in seconds, or -1.0 when the kernel does not say."""
    try:
        folder = f"{_number(process)}/task"
        tasks = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=PROCESSES)
        try:
            names = os.listdir(tasks)
        finally:
            os.close(tasks)
        return max(0.0, *(_of_thread(f"{folder}/{name}/schedstat", used) for name in names))
    except (OSError, ValueError, StopIteration):
        return -1.0


def _of_thread(path: str, used: float) -> float:
    try:
        ran, waited, _ = _read(path).split()
    except ProcessLookupError:
        return 0.0  # it has just ended
    return int(waited) / 1e9 - max(0.0, used - int(ran) / 1e9)


def _number(process: int) -> int:
    lines = _read(f"self/fdinfo/{process}").splitlines()
    return int(next(line for line in lines if line.startswith("Pid:")).split()[1])


def _read(path: str) -> str:
    file = os.open(path, os.O_RDONLY, dir_fd=PROCESSES)
    try:
        return os.read(file, _LINE).decode()
    finally:
        os.close(file)
