"""Calls one plugin for one completion, retries transient errors, and turns every exception into a failure."""

from __future__ import annotations

import inspect
import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from grpo.core.scoring.outcome import Reader, Result, explain
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import GrpoError, TransientError, with_article
from grpo.plugins.types import Completion, Row

TRANSIENT = (TransientError, ConnectionError, TimeoutError)
_FIRST_DELAY = 0.5
_TOGETHER = 1e-3  # seconds

Bound = BoundReward | BoundVerifier
Report = Callable[[str, BaseException | None], None]
Pause = Callable[[float], None]


class Caller:
    """Calls one plugin and never raises what the plugin raises, except a user's `KeyboardInterrupt` unless `alone`.

    `retries`: how often a transient failure is tried again. `report`: told about each failure: in full (with the
    traceback where there is one), and what was raised. `alone`: no user's Ctrl-C arrives in this process.
    """

    def __init__(self, plugin: Bound, *, retries: int, report: Report, alone: bool = False) -> None:
        self.plugin = plugin
        self.reader = Reader(plugin)
        self.retries = retries
        self.report = report
        self._alone = alone
        self._reads_any = plugin.spec.rest or plugin.spec.whole
        self._required = tuple(column for column in plugin.spec.columns if column.required)

    def each(self, completions: Sequence[Completion], rows: Sequence[int], pause: Pause = time.sleep) -> list[Result]:
        """Calls the plugin for one completion after the other; calls under `_TOGETHER` seconds are timed together."""
        calls, clock, count = self.plugin.calls(completions), time.perf_counter, len(completions)
        results: list[Result] = []
        size = 1
        while (first := len(results)) < count:
            wanted = min(size, count - first)
            values: list[Any] = []
            error: BaseException | None = None
            started = clock()
            try:
                values.extend(islice(calls, wanted))
            except BaseException as raised:
                error = raised
            share = (clock() - started) / wanted
            last = first + len(values)
            results += self._read(values, rows[first:last], share, completions[first:last])
            if len(values) < wanted:  # without an error it was a StopIteration; called again, it has a traceback
                call, completion, row = self.plugin.call, completions[last], rows[last]
                value, error, seconds = self._retried(call, completion, pause, error, share)
                if error is None:
                    results.append(self.read(value, row, seconds, completion.turns))
                else:
                    results.append(self.raised(error, row, seconds, completion.row))
            elif error is not None:  # Ctrl-C after the last call
                raise error
            size = max(1, min(2 * size, int(_TOGETHER / max(share, 1e-9))))
        return results

    def many(self, completions: Sequence[Completion], rows: Sequence[int], pause: Pause = time.sleep) -> list[Result]:
        """Calls the plugin once for several completions, a batch or a group, whose row numbers are `rows`."""
        call, started = self.plugin.call_together, time.perf_counter()
        try:
            values = call(completions)
            seconds = time.perf_counter() - started
        except BaseException as error:
            values, last, seconds = self._retried(call, completions, pause, error, time.perf_counter() - started)
            if last is not None:
                return [self.raised(last, row, seconds / len(rows), completions[0].row) for row in rows]
        return self.read_batch(values, rows, seconds, completions)

    def read(self, value: Any, row: int, seconds: float, turns: int) -> Result:
        """Reads what was returned for a rollout of so many turns, and reports what the contract does not allow."""
        result = self.reader.read(value, row, seconds, turns)
        if result.kind == "failure":
            if inspect.iscoroutine(value):
                value.close()
                return self.failed("it returned a coroutine; declare the function with 'async def'.", row, seconds)
            self.report(result.reason or "", None)
        return result

    def read_batch(
        self, values: Any, rows: Sequence[int], seconds: float, completions: Sequence[Completion]
    ) -> list[Result]:
        """Reads what one call for several completions returned: one value for each, or else every row fails."""
        share = seconds / len(rows)
        problem = None
        what = "group" if self.plugin.grouped else "batch"
        if isinstance(values, str | bytes | dict | set) or not hasattr(values, "__len__"):
            problem = f"its {what} function returned {with_article(type(values).__name__)}; it returns a list."
        elif len(values) != len(rows):
            problem = f"its {what} function returned {len(values)} values for {len(rows)} completions."
        if problem is not None:
            return [self.failed(problem, row, share) for row in rows]
        return self._read(list(values), rows, share, completions)

    def _read(
        self, values: Sequence[Any], rows: Sequence[int], seconds: float, completions: Sequence[Completion]
    ) -> list[Result]:
        usual = self.reader.usual(values, seconds)
        if usual is not None:
            return [*usual]
        return [
            self.read(value, row, seconds, completion.turns)
            for value, row, completion in zip(values, rows, completions, strict=True)
        ]

    def failed(self, problem: str, row: int, seconds: float = 0.0, details: str = "") -> Result:
        result = self.reader.failure(problem, row, seconds)
        self.report(f"{result.reason}\n{details}".rstrip(), None)
        return result

    def raised(self, error: BaseException, row: int, seconds: float, columns: Row) -> Result:
        """Reports an exception of the plugin, and returns its failure. `columns`: what a call could read."""
        reason = explain(error)
        if type(error) is KeyError and self._reads_any and reason.removeprefix("KeyError: ").strip("'") not in columns:
            reason += f"; the row has: {', '.join(columns) or 'no columns'}"
        result = self.reader.failure(reason, row, seconds)
        # An error that grpo raises on purpose says all in its words.
        shown = "" if isinstance(error, GrpoError) else f"\n{''.join(traceback.format_exception(error))}".rstrip()
        self.report(f"{result.reason}{shown}", error)
        return result

    def delay(self, error: BaseException, attempt: int) -> float | None:
        """Returns the seconds to wait before the next attempt, or None when there is none."""
        if attempt >= self.retries or not isinstance(error, TRANSIENT):
            return None
        return float(_FIRST_DELAY * 2**attempt * (1 + 0.25 * random.random()))

    def missing(self, completions: Sequence[Completion]) -> dict[int, str]:
        """Returns index to column for the completions whose row lacks a required column."""
        return {
            index: column.name
            for column in reversed(self._required)
            for index, completion in enumerate(completions)
            if column.name not in completion.row and column.found_in(completion.row) is None
        }

    def differing(self, group: Sequence[Completion]) -> str | None:
        """Returns a column in which the rows of a group differ, or None: its plugin reads one row for all of them."""
        first, others = group[0].row, [other.row for other in group[1:] if other.row is not group[0].row]
        for column in self.plugin.spec.columns if others else ():
            values = [row.get(column.found_in(row) or column.name, column.default) for row in (first, *others)]
            if any(value is not values[0] and repr(value) != repr(values[0]) for value in values):
                return column.name
        return None

    def _retried(
        self, call: Callable[[Any], Any], argument: Any, pause: Pause, error: BaseException | None, seconds: float
    ) -> tuple[Any, BaseException | None, float]:
        attempt = 0
        while True:
            if error is not None:
                on_main = threading.current_thread() is threading.main_thread()
                if isinstance(error, KeyboardInterrupt) and on_main and not self._alone:
                    raise error
                delay = self.delay(error, attempt)
                if delay is None:
                    return None, error, seconds
                attempt += 1
                pause(delay)
            started = time.perf_counter()
            try:
                return call(argument), None, time.perf_counter() - started
            except BaseException as again:
                error, seconds = again, time.perf_counter() - started
