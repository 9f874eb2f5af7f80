"""Runs async rewards on one event loop in a thread of its own.

Theory of operation. Tasks from any thread become coroutines, at most 128 calls at once, each cancelled at its time
limit. One that never awaits blocks the loop: `check` sees it hold a silent loop for its whole limit, fails it, and
continues the others on a fresh loop. Time in which a call imports a module counts for no call.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from grpo.core.scoring.task import Task
from grpo.core.scoring.threads import ImportTime, stack_of

_MOST_AT_ONCE = 128
_BEAT = 0.1


class LoopExecutor:
    """Runs async plugins; the loop starts with the first task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None

    def submit(self, task: Task) -> None:
        """Takes a task; its results are settled from the loop's thread."""
        with self._lock:
            if self._loop is None:
                self._loop = _Loop()
            self._loop.add(task)

    def check(self) -> None:
        """Replaces a loop that a call has blocked for its whole time limit."""
        with self._lock:
            blocker = None if self._loop is None else self._loop.blocker()
            if self._loop is None or blocker is None:
                return
            task, indices = blocker
            problem = (
                f"it blocked the event loop for its time limit of {task.limit:g} s: an 'async def' that computes and "
                "never awaits. Make it a plain 'def' with isolation='process'. Its thread was abandoned."
            )
            task.fail(indices, problem, task.limit, stack_of(self._loop.thread))
            waiting = self._loop.abandon()
            self._loop = _Loop()
            for other in waiting:
                self._loop.add(other)

    def close(self) -> None:
        with self._lock:
            if self._loop is not None:
                for task in self._loop.abandon():
                    task.fail_open("the scorer was closed while this call ran.")
                self._loop.thread.join(1.0)
                self._loop = None


class _Loop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._beat = 0
        self._tasks: list[Task] = []
        self._calls: dict[asyncio.Task[Any], tuple[Task, list[int]]] = {}
        self._kept: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)
        self._suspect: tuple[int, asyncio.Task[Any] | None] = (0, None)
        self._suspect_since = 0.0
        self._imports = ImportTime()  # of the suspect
        self._excused = 0.0  # seconds in which imports held the loop, and with it all calls
        self.thread = threading.Thread(target=self._run, name="grpo-score-async", daemon=True)
        self.thread.start()

    def add(self, task: Task) -> None:
        self._tasks = [known for known in self._tasks if not known.wait(0)] + [task]
        self._loop.call_soon_threadsafe(self._begin, task)

    def blocker(self) -> tuple[Task, list[int]] | None:
        """Returns the call that has been seen to hold the loop, without a heartbeat, for its whole time limit."""
        current = asyncio.current_task(self._loop)
        suspect = (self._beat, current)
        now = time.monotonic()
        if suspect != self._suspect:
            self._suspect, self._suspect_since, self._imports = suspect, now, ImportTime()
            return None
        imported = self._imports.look(self.thread.ident)
        self._suspect_since += imported
        self._excused += imported
        call = self._calls.get(current) if current is not None else None
        return call if call is not None and now - self._suspect_since >= call[0].limit else None

    def abandon(self) -> list[Task]:
        """Stops the loop as soon as it can be stopped; returns the tasks that still wait for results."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        return [task for task in self._tasks if not task.wait(0)]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        # What a plugin leaves behind on the loop (a task destroyed while pending) says nothing about a score.
        self._loop.set_exception_handler(lambda loop, context: None)
        self._heartbeat()
        self._loop.run_forever()
        for left in asyncio.all_tasks(self._loop):
            left.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _heartbeat(self) -> None:
        self._beat += 1
        self._loop.call_later(_BEAT, self._heartbeat)

    def _begin(self, task: Task) -> None:
        for indices in task.calls():
            if not any(task.open(index) for index in indices):
                continue
            scoring = self._loop.create_task(self._score(task, indices))
            self._kept.add(scoring)
            scoring.add_done_callback(self._kept.discard)

    async def _score(self, task: Task, indices: list[int]) -> None:
        plugin, caller = task.caller.plugin, task.caller
        rows = task.rows(indices)
        completions = task.some(indices)
        call = (
            functools.partial(plugin.call_together, completions)
            if task.together
            else functools.partial(plugin.call, completions[0])
        )
        attempt = 0
        while True:
            async with self._slots:
                started = time.perf_counter()
                ended, value, error = await self._limited(call, task, indices)
            seconds = time.perf_counter() - started
            delay = caller.delay(error, attempt) if error is not None else None
            if delay is None:
                break
            attempt += 1
            await asyncio.sleep(delay)
        share = seconds / len(indices)
        if not ended:
            problem = f"it took longer than its time limit of {task.limit:g} s and was cancelled."
            results = [caller.failed(problem, row, share) for row in rows]
        elif error is not None:
            results = [caller.raised(error, row, share, completions[0].row) for row in rows]
        elif task.together:
            results = caller.read_batch(value, rows, seconds, completions)
        else:
            results = [caller.read(value, rows[0], seconds, completions[0].turns)]
        task.settle(indices, results)

    async def _limited(
        self, call: Callable[[], Any], task: Task, indices: list[int]
    ) -> tuple[bool, Any, BaseException | None]:
        async def guarded() -> tuple[bool, Any, BaseException | None]:
            try:
                return True, await call(), None
            except BaseException as error:  # SystemExit would end the loop; the caller makes a failure of it
                return True, None, error

        running = self._loop.create_task(guarded())
        self._calls[running] = (task, indices)
        running.add_done_callback(self._calls.pop)
        began, excused = time.monotonic(), self._excused
        left = task.limit
        while left > 0 and not running.done():
            await asyncio.wait({running}, timeout=left)
            left = task.limit + self._excused - excused - (time.monotonic() - began)
        if running.done():
            return running.result()
        running.cancel()
        return False, None, None
