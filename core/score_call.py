"""One plugin, called: a completion in, one result out, whatever the plugin does.

The same code runs in the caller's thread, in a scoring thread and in a worker process: it calls, retries transient
trouble, reads the value, and turns every exception into a failure whose traceback is reported.
"""

from __future__ import annotations

import inspect
import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from grpo.core.score_outcome import Reader, Result, explain
from grpo.plugins.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import TransientError
from grpo.plugins.types import Completion

TRANSIENT = (TransientError, ConnectionError, TimeoutError)
_FIRST_DELAY = 0.5

Bound = BoundReward | BoundVerifier
Report = Callable[[str, BaseException | None], None]
Pause = Callable[[float], None]


class Caller:
    """Calls one plugin and never raises what the plugin raises.

    The one exception to that is a `KeyboardInterrupt` on the main thread, which is the user's, unless `alone`.

    Args:
        plugin: the bound reward or verifier.
        retries: how often a transient failure is tried again.
        report: told about each failure: in full (with the traceback where there is one), and what was raised.
        alone: no user's Ctrl-C arrives in this process.
    """

    def __init__(self, plugin: Bound, *, retries: int, report: Report, alone: bool = False) -> None:
        self.plugin = plugin
        self.reader = Reader(plugin)
        self.retries = retries
        self.report = report
        self._alone = alone

    def one(self, completion: Completion, row: int, pause: Pause = time.sleep) -> Result:
        """Calls the plugin for one completion; `pause` sleeps before a retry."""
        value, error, seconds = self._attempt(self.plugin.call, completion, pause)
        if error is not None:
            return self.raised(error, row, seconds)
        return self.read(value, row, seconds)

    def many(self, completions: Sequence[Completion], rows: Sequence[int], pause: Pause = time.sleep) -> list[Result]:
        """Calls a batch plugin once for several completions, whose row numbers are `rows`."""
        value, error, seconds = self._attempt(self.plugin.call_batch, completions, pause)
        if error is not None:
            return [self.raised(error, row, seconds / len(rows)) for row in rows]
        return self.read_batch(value, rows, seconds)

    def read(self, value: Any, row: int, seconds: float) -> Result:
        """Reads a returned value, and reports one that the contract does not allow."""
        result = self.reader.read(value, row, seconds)
        if result.kind == "failure":
            if inspect.iscoroutine(value):
                value.close()
                return self.failed("it returned a coroutine; declare the function with 'async def'.", row, seconds)
            self.report(result.reason or "", None)
        return result

    def read_batch(self, values: Any, rows: Sequence[int], seconds: float) -> list[Result]:
        """Reads what a batch plugin returned: one value for each row, or else every row fails."""
        share = seconds / len(rows)
        problem = None
        if isinstance(values, str | bytes | dict | set) or not hasattr(values, "__len__"):
            problem = f"its batch function returned a {type(values).__name__}; it returns a list."
        elif len(values) != len(rows):
            problem = f"its batch function returned {len(values)} values for {len(rows)} completions."
        if problem is not None:
            return [self.failed(problem, row, share) for row in rows]
        return [self.read(value, row, share) for value, row in zip(list(values), rows, strict=True)]

    def failed(self, problem: str, row: int, seconds: float = 0.0, details: str = "") -> Result:
        """Reports a problem, and returns the failure that it is."""
        result = self.reader.failure(problem, row, seconds)
        self.report(f"{result.reason}\n{details}".rstrip(), None)
        return result

    def raised(self, error: BaseException, row: int, seconds: float = 0.0) -> Result:
        """Reports an exception of the plugin, and returns the failure that it is."""
        result = self.reader.failure(explain(error), row, seconds)
        self.report(f"{result.reason}\n{''.join(traceback.format_exception(error))}".rstrip(), error)
        return result

    def delay(self, error: BaseException, attempt: int) -> float | None:
        """Returns the seconds to wait before the next attempt, or None when there is none."""
        if attempt >= self.retries or not isinstance(error, TRANSIENT):
            return None
        return float(_FIRST_DELAY * 2**attempt * (1 + 0.25 * random.random()))

    def missing(self, completion: Completion) -> str | None:
        """Names the first required column that the completion's row lacks, or returns None."""
        return next((c.name for c in self.plugin.spec.columns if c.required and c.name not in completion.row), None)

    def _attempt(
        self, call: Callable[[Any], Any], argument: Any, pause: Pause
    ) -> tuple[Any, BaseException | None, float]:
        """Returns the value or the last error, and the seconds of the last attempt."""
        attempt = 0
        while True:
            started = time.perf_counter()
            try:
                return call(argument), None, time.perf_counter() - started
            except BaseException as error:
                on_main = threading.current_thread() is threading.main_thread()
                if isinstance(error, KeyboardInterrupt) and on_main and not self._alone:
                    raise
                delay = self.delay(error, attempt)
                if delay is None:
                    return None, error, time.perf_counter() - started
            attempt += 1
            pause(delay)
