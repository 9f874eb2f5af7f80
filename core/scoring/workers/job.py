"""Holds the calls of a task that wait, and packs their rows, in chunks sized by how long the plugin's rows take."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import cloudpickle  # type: ignore[import-untyped]

from grpo.core.scoring.call import Caller
from grpo.core.scoring.task import Task
from grpo.core.scoring.workers.transport import pack_reference, pack_value
from grpo.plugins.types import Completion

_CHUNK_SECONDS = 0.05
_LONGEST_CHUNK = 1024
_SMOOTHING = 0.2
_keys = itertools.count()


class PluginPayload:
    """One plugin as it travels; `key` is new when the packing changes, `pace` the smoothed seconds of a row."""

    def __init__(self, caller: Caller) -> None:
        self.key = next(_keys)
        self.pace: float | None = None
        self._caller = caller
        self._packed: bytes | None = None
        self._by_value = False

    def packed(self) -> bytes:
        """Returns the bytes for a worker; raises if the plugin can be sent neither by reference nor by value."""
        if self._packed is None and not self._by_value:
            self._packed = pack_reference(self._caller.plugin)
            self._by_value = self._packed is None
        if self._packed is None:
            self._packed = pack_value(self._caller.plugin)
        return self._packed

    def refused(self, key: int) -> bool:
        """Notes that a worker could not load the packing of this key; returns whether another is left."""
        if key != self.key:
            return True  # another worker refused the same packing first
        if self._by_value:
            return False
        self.key, self._packed, self._by_value = next(_keys), None, True
        return True

    def took(self, seconds: float) -> None:
        self.pace = seconds if self.pace is None else self.pace + _SMOOTHING * (seconds - self.pace)


class CallQueue:
    """The calls of one task that wait, each as its indices; those that took a process down go alone, and first."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.queue: deque[list[int]] = deque(task.calls())
        self._suspects: deque[list[int]] = deque()
        self._caution = 0

    @property
    def waiting(self) -> bool:
        """Whether a call waits; drops those that have their result."""
        for calls in (self._suspects, self.queue):
            while calls and not self.task.open(calls[0][0]):
                calls.popleft()
        return bool(self._suspects or self.queue)

    @property
    def suspect(self) -> bool:
        """Whether the next call took a process down before."""
        return bool(self._suspects)

    def take(self, size: int) -> list[list[int]]:
        """Returns the calls of the next chunk, at most so many."""
        if self._suspects:
            return [self._suspects.popleft()]
        size = 1 if self._caution > 1 else size
        return [self.queue.popleft() for _ in range(min(size, len(self.queue)))]

    def put_back(self, calls: Sequence[list[int]]) -> None:
        """Takes back calls that were not made."""
        self.queue.extendleft(reversed(calls))

    def put_back_suspect(self, indices: list[int]) -> None:
        """Takes back the rows of a call that a process died on, for one more try."""
        self._suspects.append(indices)

    def more_careful(self) -> bool:
        """Notes that rows could not be packed or unpacked; returns whether there is another way to try."""
        if self._caution > 1 or (self.task.caller.plugin.spec.batch and self._caution):
            return False
        self._caution += 1
        return True

    def pack(self, calls: Sequence[Sequence[int]]) -> bytes:
        """Returns the completions as bytes, with only the columns that the plugin reads; raises if pickling fails."""
        completions = [self.task.completions[index] for call in calls for index in call]
        spec = self.task.caller.plugin.spec
        items: Sequence[Completion] | list[tuple[str, dict[str, object], int]] = completions
        if spec.rest and not spec.whole:
            items = [(c.text, dict(c.row), c.turns) for c in completions]
        elif not spec.whole:
            names = [name for column in spec.columns for name in column.names]
            items = [(c.text, {name: c.row[name] for name in names if name in c.row}, c.turns) for c in completions]
        return bytes(cloudpickle.dumps(items) if self._caution else pickle.dumps(items, protocol=5))


class Job(CallQueue):
    """One task in the pool; `in_flight` are the workers' chunks, `load_deaths` workers that died loading the plugin."""

    def __init__(self, task: Task, payload: PluginPayload) -> None:
        super().__init__(task)
        self.payload = payload
        self.in_flight = 0
        self.load_deaths = 0

    def chunk(self, workers: int) -> list[list[int]]:
        """Returns the calls of the next chunk for one of so many workers."""
        if self.suspect or self.payload.pace is None:
            return self.take(1)
        share = math.ceil(len(self.queue) / (2 * workers))
        pace = max(self.payload.pace, 1e-6) * len(self.queue[0])
        return self.take(max(1, min(share, _LONGEST_CHUNK, int(_CHUNK_SECONDS / pace))))


@dataclass(slots=True)
class Chunk:
    """Calls that a worker has."""

    job: Job
    left: list[list[int]]  # the calls without an answer, each as its indices; the worker is on the first
    deadline: float  # when the present one must be done, by `time.monotonic`
    loading: bool  # the worker is still loading the plugin
    key: int  # of the packing that it was sent
    problem: str = ""  # why the worker was told to end, or ""
    importing: str = ""  # the module that the present call loads, or ""
    left_over: float = 0.0  # seconds that the call has when the module is there
