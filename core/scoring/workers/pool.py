"""Runs rewards in worker processes; a crash costs one completion.

Theory of operation. One thread owns all workers: the kernel kills a worker when the thread that started it ends.
Workers are fresh interpreters, never forks. A worker answers call by call, so the first call without an answer is the
one that it is on. Past its time limit the worker is killed and the rows of that call fail; the first import of a module
has the limit of loading. A call that a worker died on after it had scored other rows gets one more try, first in a
fresh worker. The other calls of the chunk go back into the queue.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
import traceback
from collections import deque
from typing import Any

from grpo.core.scoring.call import Caller
from grpo.core.scoring.task import Task
from grpo.core.scoring.workers.child import from_wire
from grpo.core.scoring.workers.job import Chunk, Job, PluginPayload
from grpo.core.scoring.workers.worker import Worker, default_memory

_LOAD_LIMIT = 120.0
_TICK = 0.25
_DYING_TICK = 0.01


class WorkerPool:
    """Runs plugins in at most `size` worker processes, which start with the first task; `memory` in bytes for each."""

    def __init__(self, size: int, memory: int | None = None) -> None:
        self._size = size
        self._memory = default_memory() if memory is None else memory
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._error = ""
        self._inbox: deque[Task] = deque()
        self._jobs: list[Job] = []
        self._payloads: dict[Caller, PluginPayload] = {}
        self._workers: dict[Worker, Chunk | None] = {}
        self._dying: list[tuple[Worker, Chunk | None]] = []

    def submit(self, task: Task) -> None:
        """Takes a task; its results are settled from the pool's thread."""
        with self._lock:
            if self._error or self._closed:
                task.fail_open(self._error or "the scorer is closed.")
                return
            if self._thread is None:
                self._selector = selectors.DefaultSelector()
                self._bell, self._ring = socket.socketpair()
                self._bell.setblocking(False)
                self._selector.register(self._bell, selectors.EVENT_READ, None)
                self._thread = threading.Thread(target=self._run, name="grpo-score-workers", daemon=True)
                self._thread.start()
            self._inbox.append(task)
            self._ring.send(b"!")

    def close(self) -> None:
        """Kills the workers; what they were scoring fails."""
        with self._lock:
            self._closed = True
            thread = self._thread
            if thread is not None and thread.is_alive():
                self._ring.send(b"!")
        if thread is not None and thread is not threading.current_thread():
            thread.join(10.0)

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn()
            problem = "the scorer was closed while this call ran."
        except Exception:
            problem = f"the worker pool broke, which is an error of grpo: {traceback.format_exc()}"
        with self._lock:
            self._error = problem
            tasks = [*self._inbox, *(job.task for job in self._jobs)]
        for task in tasks:
            task.fail_open(problem)
        ended = [*self._workers, *(worker for worker, _ in self._dying)]
        for worker in ended:
            worker.kill()
        for worker in ended:
            while not worker.reap():
                time.sleep(_DYING_TICK)
            worker.stack()
        self._selector.close()
        self._bell.close()
        self._ring.close()

    def _turn(self) -> None:
        for key, events in self._selector.select(self._patience()):
            worker = key.data
            if worker is None:
                self._bell.recv(4096)
                continue
            if events & selectors.EVENT_WRITE:
                worker.flush()
            messages, ended = worker.receive()
            for message in messages:
                self._hear(worker, message)
            if ended or (worker in self._workers and worker.gone()):
                self._lose(worker)
        with self._lock:
            arrived = [self._inbox.popleft() for _ in range(len(self._inbox))]
        for task in arrived:
            payload = self._payloads.setdefault(task.caller, PluginPayload(task.caller))
            self._jobs.append(Job(task, payload))
        now = time.monotonic()
        for worker, chunk in list(self._workers.items()):
            if worker.gone():
                self._lose(worker)
            elif chunk is not None and now > chunk.deadline:
                chunk.problem = _too_long(chunk)
                worker.stop()
                self._lose(worker)
        self._dying = [(worker, chunk) for worker, chunk in self._dying if not self._reaped(worker, chunk)]
        self._jobs = [job for job in self._jobs if not job.task.wait(0)]
        self._assign()
        for worker in self._workers:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.sending else 0)
            if self._selector.get_key(worker.channel).events != events:
                self._selector.modify(worker.channel, events, worker)

    def _patience(self) -> float | None:
        """Returns the seconds until something is due even if nothing happens; None for never."""
        if self._dying:
            return _DYING_TICK
        deadlines = [chunk.deadline for chunk in self._workers.values() if chunk is not None]
        return min(_TICK, max(0.0, min(deadlines) - time.monotonic())) if deadlines else None

    def _assign(self) -> None:
        while waiting := [job for job in self._jobs if job.waiting]:
            job = min(waiting, key=lambda each: each.in_flight)
            worker = self._free_worker(job)
            if worker is None:
                return
            self._give(worker, job, job.chunk(self._size))

    def _free_worker(self, job: Job) -> Worker | None:
        idle = [worker for worker, chunk in self._workers.items() if chunk is None]
        suitable = [worker for worker in idle if worker.rows_done == 0] if job.suspect else idle
        if suitable:
            return max(suitable, key=lambda worker: job.payload.key in worker.loaded)
        if len(self._workers) == self._size:
            if not idle:
                return None
            idle[0].kill()
            self._lose(idle[0])
        worker = Worker(self._memory)
        self._workers[worker] = None
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def _give(self, worker: Worker, job: Job, calls: list[list[int]]) -> None:
        task, payload = job.task, job.payload
        try:
            packed = None if payload.key in worker.loaded else payload.packed()
        except Exception:
            task.fail_open("it cannot be sent to a worker process; define it in a module.", traceback.format_exc())
            return
        try:
            items = job.pack(calls)
        except Exception as error:
            self._unreadable(job, calls, f"its row cannot be sent to a worker process: {error}")
            return
        numbered = [(call, [task.row(index) for index in call]) for call in calls]
        now = time.monotonic()
        deadline = now + (task.limit if packed is None else _LOAD_LIMIT)
        self._workers[worker] = Chunk(job, calls, deadline, packed is not None, payload.key)
        job.in_flight += 1
        worker.send((payload.key, packed, task.caller.retries, task.together, numbered, items))

    def _hear(self, worker: Worker, message: tuple[Any, ...]) -> None:
        chunk = self._workers.get(worker)
        if chunk is None:
            return
        job, task, now = chunk.job, chunk.job.task, time.monotonic()
        match message:
            case ("loaded",):
                worker.loaded.add(chunk.key)
                chunk.loading, chunk.deadline = False, now + task.limit
            case ("importing", module):
                chunk.importing, chunk.left_over = module, chunk.deadline - now
                chunk.deadline = now + _LOAD_LIMIT
            case ("imported",):
                chunk.importing, chunk.deadline = "", now + chunk.left_over
            case ("again", delay):
                chunk.deadline = now + delay + task.limit
            case ("done", seconds, wires, details):
                chunk.deadline = now + task.limit
                worker.rows_done += len(wires)
                job.payload.took(seconds / len(wires))
                if details is not None:
                    task.caller.report(details, None)
                task.settle([index for index, _ in wires], [from_wire(wire) for _, wire in wires])
                del chunk.left[0]
                if not chunk.left:
                    self._free(worker, chunk)
            case ("unloadable", text):
                self._free(worker, chunk)
                if job.payload.refused(chunk.key):
                    job.put_back(chunk.left)
                else:
                    task.fail_open(f"a worker process cannot load it: {text.splitlines()[-1]}", text)
            case ("unreadable", text):
                self._free(worker, chunk)
                self._unreadable(job, chunk.left, f"a worker process cannot read its row: {text.splitlines()[-1]}")
            case ("retire", suspect):
                if suspect:
                    job.put_back_suspect(chunk.left[0])
                job.put_back(chunk.left[1:] if suspect else chunk.left)
                self._free(worker, chunk)
                worker.kill()
                self._lose(worker)

    def _free(self, worker: Worker, chunk: Chunk) -> None:
        chunk.job.in_flight -= 1
        self._workers[worker] = None

    def _unreadable(self, job: Job, calls: list[list[int]], problem: str) -> None:
        if job.more_careful():
            job.put_back(calls)
            return
        job.task.fail([index for call in calls for index in call], problem)

    def _lose(self, worker: Worker) -> None:
        """Moves a worker that ended, or is told to end, from the living to the dying; frees its other rows."""
        if worker not in self._workers:
            return
        chunk = self._workers.pop(worker)
        self._selector.unregister(worker.channel)
        self._dying.append((worker, chunk))
        if chunk is not None:
            chunk.job.in_flight -= 1
            if not chunk.loading:
                chunk.job.put_back(chunk.left[1:])
                del chunk.left[1:]
        worker.expect_end()

    def _reaped(self, worker: Worker, chunk: Chunk | None) -> bool:
        """Settles what a worker died on, once it is dead; returns whether it is."""
        if not worker.reap():
            return False
        stack = worker.stack().replace("Fatal Python error: Aborted\n\n", "")
        if chunk is None:
            return True
        job, task = chunk.job, chunk.job.task
        problem = chunk.problem or f"its worker process {worker.ending()}"
        if chunk.loading:
            job.load_deaths += 1
            if chunk.problem or job.load_deaths > 1:
                task.fail_open(f"{problem} while loading it.", stack)
            else:
                job.put_back(chunk.left)
        elif chunk.problem or worker.rows_done == 0:
            text = f"{problem}; its worker process was killed." if chunk.problem else f"{problem}."
            task.fail(chunk.left[0], text, task.limit if chunk.problem else 0.0, stack)
        else:
            job.put_back_suspect(chunk.left[0])
        return True


def _too_long(chunk: Chunk) -> str:
    if chunk.loading:
        return f"loading it took longer than {_LOAD_LIMIT:g} s"
    if chunk.importing:
        return f"importing {chunk.importing} inside a call took longer than {_LOAD_LIMIT:g} s"
    return f"it took longer than its time limit of {chunk.job.task.limit:g} s"
