"""One plugin's share of a batch: the completions that wait for results, and the results that came.

In: completions, from the scorer. Out: one result each, in order, settled from any thread; the first result wins, so
that a call which ends after its time limit changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from grpo.core.score_call import Caller
from grpo.core.score_outcome import Result
from grpo.plugins.types import Completion


class Task:
    """The completions that one plugin is to score, addressed by their index in the batch.

    Attributes:
        caller: calls the plugin.
        completions: the batch.
        indices: which completions to score; the others were settled at once (a column is missing).
    """

    def __init__(self, caller: Caller, completions: Sequence[Completion], rows: Sequence[int]) -> None:
        self.caller = caller
        self.completions = completions
        self._rows = rows
        self._results: list[Result | None] = [None] * len(completions)
        self._left = len(completions)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self.indices: list[int] = []
        for index, completion in enumerate(completions):
            column = caller.missing(completion)
            if column is None:
                self.indices.append(index)
            else:
                have = ", ".join(map(str, completion.row)) or "none"
                problem = f"it needs the column '{column}'; the row has: {have}."
                self.settle(index, caller.failed(problem, self.row(index)))
        if not completions:
            self._done.set()

    @property
    def limit(self) -> float:
        """The time limit of one call, in seconds."""
        return self.caller.plugin.timeout

    @property
    def batch(self) -> bool:
        """Whether the plugin takes all completions in one call."""
        return self.caller.plugin.spec.batch

    def groups(self) -> list[list[int]]:
        """Returns the indices that each call takes: one each, or all for a batch plugin."""
        if self.batch:
            return [self.indices] if self.indices else []
        return [[index] for index in self.indices]

    def row(self, index: int) -> int:
        """Returns the row number of a completion, for messages."""
        return self._rows[index]

    def open(self, index: int) -> bool:
        """Returns whether a completion still waits for its result."""
        return self._results[index] is None

    def settle(self, index: int, result: Result) -> None:
        """Records the result of one completion, unless it has one."""
        with self._lock:
            if self._results[index] is not None:
                return
            self._results[index] = result
            self._left -= 1
            if self._left == 0:
                self._done.set()

    def fail_open(self, problem: str, details: str = "") -> None:
        """Fails every completion that still waits."""
        for index in self.indices:
            if self.open(index):
                self.settle(index, self.caller.failed(problem, self.row(index), details=details))

    def wait(self, seconds: float) -> bool:
        """Waits for the results; returns whether all are there."""
        return self._done.wait(seconds)

    def results(self) -> list[Result]:
        """Returns the results, in the order of the completions; all must have come."""
        done = [result for result in self._results if result is not None]
        assert len(done) == len(self._results)
        return done
