"""Runs environments side by side, each in a thread of its own.

Theory of operation. The environment of a rollout is made, reset, stepped and closed in one thread, since some libraries
want that. Python cannot end a thread: a call over its limit is a failure, its daemon thread is left and the environment
not called again. Environments that answered have closed before the next batch makes its own. C code that hangs with the
interpreter's lock holds up everything; that needs a process of its own.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from grpo.core.scoring.outcome import explain
from grpo.plugins.error_lines import line_that_raised
from grpo.plugins.errors import GrpoError
from grpo.plugins.exit_guard import raise_on_exit

_ENGINE = Path(__file__).resolve().parents[1]
AT_ONCE = 64  # calls that run at the same time
CLOSING = 5.0  # seconds to wait for environments that close, all together

Call = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Raised:
    """A call that gave no result: what it raised, or a `TimeoutError`."""

    error: BaseException  # that
    shared: bool = False  # its whole process ended or hung, maybe because of another environment in it
    line: str = ""  # the environment's line that raised it, as "my_env/game.py:24"; "" if a message of ours says enough

    def explained(self) -> str:
        """Returns what happened, and where in the environment's code."""
        return f"{explain(self.error)} (at {self.line})" if self.line else explain(self.error)


def _their_line(error: BaseException) -> str:
    """Returns the line of an environment that raised an error; "" for one that the engine or the contract words."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, GrpoError) or not frames:
        return ""
    innermost = Path(frames[-1].f_code.co_filename).resolve()
    return "" if innermost.is_relative_to(_ENGINE) else line_that_raised(error)


class EnvCalls(Protocol):
    """A place where environments are called by number, see `EnvThreads`; it is entered and left."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Makes one call for each environment and returns its result, or a `Raised`."""


class EnvThreads:
    """The environments of a batch of rollouts, by number. `seconds`: for one call, the first with the making of it."""

    def __init__(self, make: Callable[[], Any], *, seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._done: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        self._workers: dict[int, _Worker] = {}
        self._closing: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for number in list(self._workers):
            self.release(number)
        if error is None or isinstance(error, Exception):  # whoever interrupts does not want to wait
            until = time.monotonic() + CLOSING
            for worker in self._closing:
                worker.thread.join(max(0.0, until - time.monotonic()))
            if any(worker.thread.is_alive() for worker in self._closing):
                _warn(f"environments take over {CLOSING:g} s to close: each batch waits that long, and leaves them")

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Makes one call for each environment; a number that failed must not be called again."""
        waiting = deque(calls.items())
        running: dict[_Worker, float] = {}
        results: dict[int, Any] = {}
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                number, call = waiting.popleft()
                if number not in self._workers:
                    self._workers[number] = _Worker(number, self._make, self._done)
                worker = self._workers[number]
                running[worker] = time.monotonic() + self._seconds
                worker.calls.put(call)
            try:
                worker, result = self._done.get(timeout=max(0.0, min(running.values()) - time.monotonic()))
            except queue.Empty:
                for worker in [worker for worker, limit in running.items() if limit <= time.monotonic()]:
                    del running[worker]
                    results[worker.number] = Raised(TimeoutError(f"no answer within {self._seconds:g} s"))
                    self.release(worker.number)
                    self._closing.remove(worker)  # nobody knows when
                continue
            if running.pop(worker, None) is not None:  # else it came after its limit
                results[worker.number] = result
                if isinstance(result, Raised):
                    self.release(worker.number)
        return results

    def release(self, number: int) -> None:
        """Has an environment closed, in its thread, once it is idle."""
        worker = self._workers.pop(number, None)
        if worker is not None:
            worker.calls.put(None)
            self._closing.append(worker)


class _Worker:
    def __init__(self, number: int, make: Callable[[], Any], done: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        self.number = number
        self.calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._make = make
        self._done = done
        self.thread = threading.Thread(target=self._run, name=f"grpo-env-{number}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        raise_on_exit()
        env: Any = None
        while (call := self.calls.get()) is not None:
            try:
                env = self._make() if env is None else env
                result = call(env)
            except BaseException as error:  # also an environment that calls exit()
                result = Raised(error, line=_their_line(error))
            self._done.put((self, result))
        if env is not None:
            try:
                env.close()
            except BaseException as error:  # of no rollout: this one has ended
                _warn(f"an environment raised when it was closed: {type(error).__name__}: {error}")


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
