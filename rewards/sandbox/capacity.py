"""Limits how many programs run at once, for tasks, threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from grpo.plugins.sandbox_job import Job, JobResult


class Room:
    """How many programs may run at once, shared fairly by tasks, threads and event loops."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def run(self, jobs: Sequence[Job], run_one: Callable[[Job], Awaitable[JobResult]]) -> list[JobResult]:
        """Runs jobs, as many at once as there are places, and returns their results in order."""
        if len(jobs) == 1:
            return [await run_one(jobs[0])]
        results: dict[int, JobResult] = {}
        pending = iter(enumerate(jobs))

        async def work() -> None:
            for number, job in pending:
                results[number] = await run_one(job)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self.size, len(jobs))):
                workers.create_task(work())
        return [results[number] for number in range(len(jobs))]

    async def take(self, count: int) -> None:
        """Waits for its turn and takes `count` places."""
        with self._lock:
            if not self._waiting and self._free >= count:
                self._free -= count
                return
            loop = asyncio.get_running_loop()
            turn = loop.create_future()
            self._waiting.append((count, loop, turn))
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                mine = [entry for entry in self._waiting if entry[2] is turn]
                for entry in mine:
                    self._waiting.remove(entry)
            if not mine:
                self.give(count)
            raise

    def give(self, count: int) -> None:
        with self._lock:
            self._free += count
            while self._waiting and self._free >= self._waiting[0][0]:
                wanted, loop, turn = self._waiting.popleft()
                self._free -= wanted
                loop.call_soon_threadsafe(_grant, turn)


def _grant(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
