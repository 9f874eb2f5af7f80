"""Holds one plugin's share of a batch; results are settled from any thread, and the first one wins."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import cast

from grpo.core.scoring.call import Caller
from grpo.core.scoring.outcome import Result
from grpo.plugins.errors import did_you_mean
from grpo.plugins.types import Completion


class Task:
    """The completions that one plugin is to score, by index; those outside `indices` were settled at once."""

    def __init__(self, caller: Caller, completions: Sequence[Completion], rows: Sequence[int]) -> None:
        self.caller = caller
        self.completions = caller.plugin.shown(completions)
        self._rows = rows
        self._results: list[Result | None] = [None] * len(completions)
        self._left = len(completions)
        self._lock = threading.Lock()
        self._done = threading.Event()
        missing = caller.missing(completions)
        self.indices: Sequence[int] = range(len(completions))
        if missing:
            self.indices = [index for index in self.indices if index not in missing]
        for index, column in sorted(missing.items()):
            have = [str(name) for name in completions[index].row]
            text = f"it needs the column '{column}'; the row has: {', '.join(have) or 'none'}."
            self.fail([index], text + did_you_mean(column, have))
        for call in self.calls() if caller.plugin.grouped else ():
            differs = caller.differing(self.some(call))
            if differs is not None:
                self.fail(
                    call, f"the rows of its group differ in the column '{differs}', so they have no prompt in common."
                )
                self.indices = [index for index in self.indices if index not in call]
        if not completions:
            self._done.set()

    @property
    def limit(self) -> float:
        """The time limit of one call, in seconds."""
        return self.caller.plugin.timeout

    @property
    def together(self) -> bool:
        return self.caller.plugin.together

    def calls(self) -> list[list[int]]:
        """Returns the indices that each call takes: one each, those of a group, or all for a batch plugin."""
        if self.caller.plugin.grouped:
            groups: dict[object, list[int]] = {}
            for index in self.indices:
                number = self.completions[index].group
                groups.setdefault(("alone", index) if number is None else number, []).append(index)
            return list(groups.values())
        if self.together:
            return [list(self.indices)] if self.indices else []
        return [[index] for index in self.indices]

    def rows(self, indices: Sequence[int]) -> Sequence[int]:
        return self._rows if indices == range(len(self._rows)) else [self._rows[index] for index in indices]

    def some(self, indices: Sequence[int]) -> Sequence[Completion]:
        every = indices == range(len(self.completions))
        return self.completions if every else [self.completions[index] for index in indices]

    def row(self, index: int) -> int:
        """Returns the row number of a completion, for messages."""
        return self._rows[index]

    def open(self, index: int) -> bool:
        """Returns whether a completion still waits for its result."""
        return self._results[index] is None

    def settle(self, indices: Sequence[int], results: Sequence[Result]) -> None:
        """Records the results of some completions, but for those that have one."""
        with self._lock:
            if self._left == len(self._results) == len(results) and indices == range(self._left):
                self._results, self._left = list(results), 0
            for index, result in zip(indices, results, strict=True) if self._left else ():
                if self._results[index] is None:
                    self._results[index] = result
                    self._left -= 1
            if self._left == 0:
                self._done.set()

    def fail(self, indices: Sequence[int], problem: str, seconds: float = 0.0, details: str = "") -> None:
        """Fails some completions, each after its share of the seconds."""
        share = seconds / max(1, len(indices))
        self.settle(indices, [self.caller.failed(problem, self.row(index), share, details) for index in indices])

    def fail_open(self, problem: str, details: str = "") -> None:
        self.fail([index for index in self.indices if self.open(index)], problem, details=details)

    def leave_out(self, rows: Collection[int]) -> None:
        """Has some rows not called for, because their results come from elsewhere."""
        if rows:
            self.indices = [index for index in self.indices if self._rows[index] not in rows]

    def abandon(self) -> None:
        """Settles every completion that still waits, without a report: the results are not read."""
        waiting = [index for index in self.indices if self.open(index)]
        self.settle(waiting, [self.caller.reader.failure("its batch was given up.", self.row(i)) for i in waiting])

    def wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)

    def results(self) -> list[Result]:
        """Returns the results, in the order of the completions; all must have come."""
        assert self._left == 0
        return cast(list[Result], self._results)
