"""Scores on the nodes of a cluster.

Theory of operation. One thread keeps two chunks of about half a second with every node. Chunks of a lost node are tried
up to three times; then their calls fail. A lost call goes alone to an idle node, so as to take no other with it.
"""

from __future__ import annotations

import math
import pickle
import queue
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from grpo.core.cluster.ray_cluster import NodeLost, RemoteObject
from grpo.core.scoring.call import Caller
from grpo.core.scoring.nodes.shipping import ship
from grpo.core.scoring.task import Task
from grpo.core.scoring.workers.child import from_wire
from grpo.core.scoring.workers.job import CallQueue
from grpo.plugins._spec.signature import is_async

KIND = "grpo.core.scoring.nodes.node:ScoringNode"

_AT_A_NODE = 2  # chunks, so that one waits while the other is scored
_CHUNK_SECONDS = 0.5
_LONGEST_CHUNK = 4096
_SMOOTHING = 0.3
_TRIES = 3  # "the third time"
_AWAY = 4.0  # seconds before a node that did not answer is asked again, in which it starts; twice as many each time


@dataclass(slots=True)
class _Parcel:
    shipped: tuple[bytes, str, str]  # see `ship`
    pace: float | None = None  # seconds of a node for a row
    loaded: set[int] = field(default_factory=set)  # nodes that have answered
    lacking: dict[int, str] = field(default_factory=dict)  # node to what it lacks


class _Job(CallQueue):
    def __init__(self, task: Task, parcel: _Parcel) -> None:
        super().__init__(task)
        self.parcel = parcel
        self.losses: Counter[int] = Counter()  # first index of a call to how often it was lost


@dataclass(slots=True)
class _Member:
    node: RemoteObject
    workers: int
    chunks: int = 0
    alone: bool = False  # it has a call that was lost before, and nothing beside it
    away: float = 0.0  # until when it is not asked
    absences: int = 0  # since it last answered

    def free(self, most: int) -> bool:
        return self.chunks < most and not self.away and not self.alone


@dataclass(frozen=True, slots=True)
class _Sent:
    job: _Job
    member: int
    calls: list[list[int]]
    since: float


class NodePool:
    """Scores on nodes; the thread starts with the first task. Use it with `scoring_elsewhere`."""

    def __init__(self, nodes: Sequence[tuple[RemoteObject, int]]) -> None:
        self._members = {number: _Member(node, workers) for number, (node, workers) in enumerate(nodes)}
        self._events: queue.SimpleQueue[Task | tuple[_Sent, Future[bytes]] | None] = queue.SimpleQueue()
        self._jobs: list[_Job] = []
        self._parcels: dict[Caller, _Parcel] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, task: Task) -> None:
        with self._lock:
            if self._closed:
                task.fail_open("the scorer is closed.")
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="grpo-score-nodes", daemon=True)
                self._thread.start()
            self._events.put(task)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None:
            self._events.put(None)
            thread.join(10.0)

    def _run(self) -> None:
        problem = "the scorer was closed while this call ran."
        try:
            while (event := self._next()) is not None:
                if isinstance(event, Task):
                    self._begin(event)
                elif isinstance(event, tuple):
                    self._hear(*event)
                self._jobs = [job for job in self._jobs if not job.task.wait(0)]
                self._assign()
        except Exception:
            problem = f"scoring on nodes broke, which is an error of grpo: {traceback.format_exc()}"
        with self._lock:
            self._closed = True
        for job in self._jobs:
            job.task.fail_open(problem)
        while not self._events.empty():
            if isinstance(event := self._events.get(), Task):
                event.fail_open(problem)

    def _next(self) -> Task | tuple[_Sent, Future[bytes]] | str | None:
        """Waits for what happens next: a task, an answer, "" where a node may be asked again, None at the end."""
        away = [member.away for member in self._members.values() if member.away]
        try:
            return self._events.get(timeout=max(0.0, min(away) - time.monotonic()) if away else None)
        except queue.Empty:
            for member in self._members.values():
                member.away = 0.0 if member.away <= time.monotonic() else member.away
            return ""

    def _begin(self, task: Task) -> None:
        try:
            parcel = self._parcels.get(task.caller) or _Parcel(ship(task.caller.plugin))
        except Exception:
            task.fail_open("it cannot be sent to another machine; define it in a module.", traceback.format_exc())
            return
        self._parcels[task.caller] = parcel
        self._jobs.append(_Job(task, parcel))

    def _assign(self) -> None:
        for job in self._jobs:
            while job.waiting:
                able = [number for number in self._members if number not in job.parcel.lacking]
                if not able:
                    lacking = "; ".join(job.parcel.lacking.values())
                    job.task.fail_open(
                        f"no node can score it: {lacking}." if lacking else "no node is left to score it."
                    )
                    break
                most = 1 if job.suspect else _AT_A_NODE
                free = [n for n in able if self._members[n].free(most)]
                if not free:
                    break
                self._send(job, min(free, key=lambda n: self._members[n].chunks / self._members[n].workers))

    def _send(self, job: _Job, number: int) -> None:
        member, task = self._members[number], job.task
        alone, calls = job.suspect, self._take(job, member)
        try:
            items = job.pack(calls)
        except Exception as error:
            if job.more_careful():
                job.put_back(calls)
            else:
                task.fail(_indices(calls), f"its row cannot be sent to another machine: {error}")
            return
        message = (
            job.parcel.shipped,
            is_async(task.caller.plugin.spec.function),
            task.caller.retries,
            [task.row(index) for index in _indices(calls)],
            calls,
            items,
        )
        sent = _Sent(job, number, calls, time.monotonic())
        member.chunks += 1
        member.alone = alone
        answer = member.node.ask("score", pickle.dumps(message, protocol=5))
        answer.add_done_callback(lambda done: self._events.put((sent, done)))

    def _take(self, job: _Job, member: _Member) -> list[list[int]]:
        if job.suspect:
            return job.take(1)
        workers = sum(each.workers for each in self._members.values())
        share = math.ceil(len(job.queue) * member.workers / (_AT_A_NODE * workers))
        pace = job.parcel.pace
        rows = len(job.queue[0])
        wanted = 4 * member.workers if pace is None else int(_CHUNK_SECONDS / max(pace * rows, 1e-6))
        return job.take(max(1, min(share, _LONGEST_CHUNK, max(member.workers, wanted))))

    def _hear(self, sent: _Sent, answer: Future[bytes]) -> None:
        member, task = self._members.get(sent.member), sent.job.task
        if member is not None:
            member.chunks -= 1
            member.alone = False
        error = answer.exception()
        if isinstance(error, NodeLost):
            self._lost(sent, error)
            return
        if member is not None:
            member.absences = 0
        if error is not None:
            task.fail(_indices(sent.calls), f"the node that scored it broke: {error}")
            return
        match pickle.loads(answer.result()):
            case ("done", wires, failures):
                for text in failures:
                    task.caller.report(text, None)
                indices = _indices(sent.calls)
                task.settle(indices, [from_wire(wire) for wire in wires])
                self._measure(sent, len(indices))
            case ("missing", what):
                sent.job.parcel.lacking[sent.member] = f"on {self._name(sent)} {what}"
                sent.job.put_back(sent.calls)
            case ("broken", text):
                sent.job.parcel.lacking[sent.member] = f"{self._name(sent)} cannot load it: {text.splitlines()[-1]}"
                task.caller.report(text, None)
                sent.job.put_back(sent.calls)

    def _measure(self, sent: _Sent, rows: int) -> None:
        """Records a node's seconds for a row; its first chunk, with which it loads the plugin, does not count."""
        parcel = sent.job.parcel
        if sent.member in parcel.loaded:
            pace = (time.monotonic() - sent.since) / _AT_A_NODE / rows
            parcel.pace = pace if parcel.pace is None else parcel.pace + _SMOOTHING * (pace - parcel.pace)
        parcel.loaded.add(sent.member)

    def _lost(self, sent: _Sent, error: NodeLost) -> None:
        if error.for_good:
            self._members.pop(sent.member, None)
        elif (member := self._members.get(sent.member)) is not None:
            member.away = time.monotonic() + _AWAY * 2**member.absences
            member.absences += 1
        for call in sent.calls:
            sent.job.losses[call[0]] += 1
            if sent.job.losses[call[0]] >= _TRIES:
                sent.job.task.fail(call, f"{error}, for the third time with this call.")
            else:
                sent.job.put_back_suspect(call)

    def _name(self, sent: _Sent) -> str:
        member = self._members.get(sent.member)
        return f"node {sent.member}" if member is None else member.node.name


def _indices(calls: Sequence[Sequence[int]]) -> list[int]:
    return [index for call in calls for index in call]
