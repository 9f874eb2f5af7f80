"""What a machine does to programs: ends them from outside, or is busy with something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "import ctypes\nctypes.CDLL(None).prctl(15, b'marked', 0, 0, 0)\n"
_BUSY = "import sys\nprint(flush=True)\nwhile True: pass"


def _children(process: int, task: str = "") -> list[int]:
    try:
        return [int(name) for name in Path(f"/proc/{process}/task/{task or process}/children").read_text().split()]
    except OSError:
        return []


def programs() -> dict[int, str]:
    """Returns the programs in sandboxes of this process, a launcher's zygote's children, and their names."""
    launchers = {child for task in Path("/proc/self/task").iterdir() for child in _children(os.getpid(), task.name)}
    running = [program for launcher in launchers for zygote in _children(launcher) for program in _children(zygote)]
    names = {}
    for program in running:
        with suppress(OSError):
            names[program] = Path(f"/proc/{program}/comm").read_text().strip()
    return names


@contextmanager
def killing(times: int, *, marked: bool) -> Iterator[list[int]]:
    """Ends programs by SIGKILL, as the kernel does when memory is short, and gives the list of those that it ended.

    Args:
        times: how often.
        marked: only those that ran `MARK`; else only those that did not, while one that did is running.
    """
    ended: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(ended) < times and not over.is_set():
            there = programs()
            for process, name in there.items():
                if process not in ended and "marked" in there.values() and (name == "marked") == marked:
                    with suppress(OSError):
                        os.kill(process, signal.SIGKILL)
                        ended.append(process)
                        break
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield ended
    finally:
        over.set()
        killer.join()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keeps the processors busy with so many processes, each in a session of its own: these may share alike."""
    command = [sys.executable, "-c", _BUSY]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()
