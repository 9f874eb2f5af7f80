"""Runs rewards in threads, each call with a time limit.

Theory of operation. Workers are daemon threads on a common queue. Python cannot end a thread: `check` fails a call at
its limit, abandons its worker and starts another; time of imports does not count. A plugin with 32 calls that never
came back is not called again for the batch.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque

from grpo.core.scoring.call import Caller
from grpo.core.scoring.task import Task

_MOST_STUCK = 32

_MOST = 120.0  # seconds of one call
_IMPORTING = "<frozen importlib._bootstrap>"  # the file of the frames below which a module is loaded


class ThreadExecutor:
    """Runs plugins in at most `workers` threads at once, not counting abandoned ones; started by the first task."""

    def __init__(self, workers: int) -> None:
        self._most = workers
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Task, list[int]]] = deque()
        self._workers: set[_Worker] = set()
        self._stuck: list[tuple[Caller, threading.Thread]] = []
        self._closed = False

    def submit(self, task: Task) -> None:
        """Takes a task; its results are settled from the workers."""
        calls = task.calls()
        with self._changed:
            self._waiting.extend((task, call) for call in calls)
            for _ in range(min(len(calls), self._most - len(self._workers))):
                self._start_worker()
            self._changed.notify_all()

    def check(self) -> None:
        """Fails the calls that are past their time limit, and replaces their workers."""
        with self._changed:
            for worker in self._workers:
                worker.excuse_import()
            for worker in [worker for worker in self._workers if worker.late()]:
                self._abandon(worker)

    def close(self) -> None:
        """Ends the workers; one whose call never returns stays behind as a daemon thread."""
        with self._changed:
            self._closed = True
            for task, _ in self._waiting:
                task.fail_open("the scorer was closed before this call began.")
            self._waiting.clear()
            for worker in self._workers:
                if worker.work is not None:
                    worker.work[0].fail_open("the scorer was closed while this call ran.")
            self._changed.notify_all()

    def take(self, worker: _Worker) -> tuple[Task, list[int]] | None:
        """Waits for the next call of a worker; returns None when the lane is to end."""
        with self._changed:
            worker.work = None
            while not (self._closed or worker.abandoned):
                while self._waiting:
                    task, indices = self._waiting.popleft()
                    if any(task.open(index) for index in indices):
                        worker.begin(task, indices)
                        return worker.work
                self._changed.wait()
            return None

    def _start_worker(self) -> None:
        worker = _Worker(self)
        self._workers.add(worker)
        worker.thread.start()

    def _abandon(self, worker: _Worker) -> None:
        assert worker.work is not None
        task, indices = worker.work
        worker.abandoned = True
        self._workers.discard(worker)
        self._stuck = [(caller, thread) for caller, thread in self._stuck if thread.is_alive()]
        self._stuck.append((task.caller, worker.thread))
        _fail_late(task, indices, stack_of(worker.thread))
        stuck = sum(caller is task.caller for caller, _ in self._stuck)
        if stuck >= _MOST_STUCK:
            task.fail_open(f"{stuck} of its calls are stuck in threads. Use isolation='process' to end such calls.")
        self._start_worker()


class _Worker:
    def __init__(self, isolation: ThreadExecutor) -> None:
        self.work: tuple[Task, list[int]] | None = None
        self.started = 0.0
        self._imports = ImportTime()
        self.abandoned = False
        self.thread = threading.Thread(target=self._run, name="grpo-score-thread", daemon=True)
        self._isolation = isolation

    def begin(self, task: Task, indices: list[int]) -> None:
        self.work = task, indices
        self.started = time.monotonic()
        self._imports = ImportTime()

    def excuse_import(self) -> None:
        """Does not count the time since the last look where the call is importing a module."""
        if self.work is not None:
            self.started += self._imports.look(self.thread.ident)

    def late(self) -> bool:
        return self.work is not None and time.monotonic() - self.started > self.work[0].limit

    def _run(self) -> None:
        while (work := self._isolation.take(self)) is not None:
            task, indices = work
            call = task.caller.many if task.together else task.caller.each
            results = call(task.some(indices), task.rows(indices), self._pause)
            if self.abandoned:
                return
            if self.late():
                _fail_late(task, indices, "")
            task.settle(indices, results)

    def _pause(self, seconds: float) -> None:
        self.started = time.monotonic() + seconds
        time.sleep(seconds)


def stack_of(thread: threading.Thread) -> str:
    """Returns where a thread is, as a traceback shows it; "" for one that does not run."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else ""


def _fail_late(task: Task, indices: list[int], details: str) -> None:
    problem = (
        f"it took longer than its time limit of {task.limit:g} s. A thread cannot be ended, so it runs on; "
        "use isolation='process' to end such calls."
    )
    task.fail(indices, problem, task.limit, details)


class ImportTime:
    """How long one call imported, as far as that was seen."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._looked = time.monotonic()

    def look(self, thread: int | None) -> float:
        """Returns the seconds since the last look where the thread is importing, at most 120 s in all, and else 0."""
        now, frame = time.monotonic(), sys._current_frames().get(thread or 0)
        since, self._looked = now - self._looked, now
        while frame is not None and frame.f_code.co_filename != _IMPORTING:  # an import, or a wait for one
            frame = frame.f_back
        if frame is None or self._seconds >= _MOST:
            return 0.0
        self._seconds += since
        return since
