"""Waits for what must happen and ends what must not go on; both have a minute, which no busy machine needs.

A limit of the product that others have to keep is a minute too. `Clock` lets a test put such a limit behind it at once.
"""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from grpo.plugins.errors import TransientError

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds until a test gives up on what takes a second or two."""
RUN = 600.0
"""The same for a run, and for processes that load torch and trl: what takes up to a minute where nothing else works."""
READS = 10
"""How often a clock is read, at the least, while whoever watches a limit looks at everything once."""


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Returns whether the condition came true, at the latest after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


async def tried_again(call: Callable[[], Awaitable[T]]) -> T:
    """Returns what a call returns; tries again, as a run does, where the machine was too busy to say."""
    deadline = time.monotonic() + RUN
    while True:
        try:
            return await call()
        except TransientError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(1.0)


@contextmanager
def little_work(of: str) -> Iterator[None]:
    """Fails the test when the block computes for a minute of this process's processor time.

    For texts so long that anything but linear work takes many minutes. Regular expressions are interrupted too; a
    single call of other C code is failed when it returns.

    Args:
        of: what is worked on, for the message.
    """

    def give_up(*_: object) -> None:
        pytest.fail(f"more than {PATIENCE:g} s of processor time for {of!r}")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class Clock:
    """Takes the place of the module `time` in modules of the product: the real time, which a test can put forward.

    Args:
        monkeypatch: puts it there.
        modules: their names.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
        self._ahead = 0.0
        self._reads = 0
        for module in modules:
            monkeypatch.setattr(f"{module}.time", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        """Returns the seconds of the clock."""
        self._reads += 1
        return time.monotonic() + self._ahead

    def forward(self, seconds: float = PATIENCE + 1) -> None:
        """Puts the clock forward, past a limit of a minute."""
        self._ahead += seconds

    def looked_at(self, times: int = READS) -> bool:
        """Waits until the product has read the clock so many times more."""
        wanted = self._reads + times
        return wait_for(lambda: self._reads >= wanted)

    def forward_after(self, condition: Callable[[], object]) -> None:
        """Puts the clock forward, in a thread, once the condition is true and the product has looked at all of it."""

        def watch() -> None:
            if wait_for(condition) and self.looked_at():
                self.forward()

        threading.Thread(target=watch, daemon=True).start()


class EnvClock(Clock):
    """The clock of `EnvThreads`, which also ends a wait of its own that the clock was put past."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, "grpo.core.env.threads")
        self.unanswered = self.hanging = 0
        self.counting = threading.Lock()
        monkeypatch.setattr("grpo.core.env.threads.queue", SimpleNamespace(SimpleQueue=self._queue, Empty=queue.Empty))

    def hang(self) -> None:
        """Is a call that hangs: once only such calls are unanswered, their time is up."""
        with self.counting:
            self.hanging += 1
        alone = False
        while not alone:
            assert wait_for(lambda: self.unanswered == self.hanging)
            alone = self.looked_at(3) and self.unanswered == self.hanging  # so none is being handed out, either
        self.forward()
        threading.Event().wait(PATIENCE)

    def _queue(self) -> _ClockQueue:
        return _ClockQueue(self)


class _ClockQueue:
    """A `queue.SimpleQueue` whose waits are of the time of a clock."""

    def __init__(self, clock: EnvClock) -> None:
        self._clock = clock
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: Any) -> None:
        with self._clock.counting:
            self._clock.unanswered += 1 if callable(item) else -1 if item is not None else 0
        self._items.put(item)

    def get(self, timeout: float | None = None) -> Any:
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while True:
            with suppress(queue.Empty):
                return self._items.get(timeout=0.02)
            if deadline is not None and self._clock.monotonic() >= deadline:
                raise queue.Empty
