"""Runs tasks on the event loop, in worker processes, in threads or, within `scoring_elsewhere`, on other machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from grpo.core.scoring.call import Caller
from grpo.core.scoring.loop import LoopExecutor
from grpo.core.scoring.task import Task
from grpo.core.scoring.threads import ThreadExecutor
from grpo.core.scoring.workers.pool import WorkerPool
from grpo.plugins._spec.signature import is_async

_THREADS_PER_WORKER = 4

Submit = Callable[[Task], None]
"""Takes a task, whose results are settled from any thread."""
_elsewhere: ContextVar[Submit | None] = ContextVar("where worker processes are", default=None)


@contextmanager
def scoring_elsewhere(submit: Submit) -> Iterator[None]:
    """Has the scorers that are made inside the block hand over what is meant for processes and sandboxes."""
    before = _elsewhere.set(submit)
    try:
        yield
    finally:
        _elsewhere.reset(before)


class Executors:
    """The places where tasks run, each started by its first task; `memory` in bytes for each worker process."""

    def __init__(self, workers: int, memory: int | None) -> None:
        self._workers = workers
        self._memory = memory
        self._elsewhere = _elsewhere.get()
        self._open()

    def submit(self, task: Task) -> bool:
        """Hands a task to its executor; returns False when it belongs in the calling thread."""
        if os.getpid() != self._process:  # the threads of a forked process stayed behind in its parent
            self._open()
        spec = task.caller.plugin.spec
        if self._elsewhere is not None and travels(task.caller):
            self._elsewhere(task)
        elif is_async(spec.function):
            self.loop.submit(task)
        elif spec.isolation == "process":
            self.processes.submit(task)
        elif spec.isolation == "thread":
            self.threads.submit(task)
        else:
            return False
        return True

    @staticmethod
    def beside(caller: Caller) -> bool:
        """Returns whether a reward needs no whole batch and is called beside the calling thread."""
        spec = caller.plugin.spec
        return not spec.batch and (is_async(spec.function) or spec.isolation != "inline")

    @staticmethod
    def shares_process(caller: Caller) -> bool:
        """Returns whether a plugin runs in this process, and may change its state."""
        spec = caller.plugin.spec
        return is_async(spec.function) or spec.isolation != "process"

    def check(self) -> None:
        """Ends the waiting for calls that are past their time limit."""
        self.loop.check()
        self.threads.check()

    def close(self) -> None:
        """Closes them all, unless they are another process's."""
        if os.getpid() == self._process:
            for isolation in (self.processes, self.threads, self.loop):
                isolation.close()

    def _open(self) -> None:
        self._process = os.getpid()
        self.loop = LoopExecutor()
        self.threads = ThreadExecutor(_THREADS_PER_WORKER * self._workers)
        self.processes = WorkerPool(self._workers, self._memory)


def travels(caller: Caller) -> bool:
    """Returns whether a plugin may run elsewhere: in a process of its own, or programs in a sandbox."""
    spec = caller.plugin.spec
    if is_async(spec.function):
        return any(option.name == "sandbox" for option in spec.options)
    return spec.isolation == "process"


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
