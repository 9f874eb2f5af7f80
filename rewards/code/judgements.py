"""Caches the judgements of this process, so that a program runs once for all rewards and verifiers.

The first to ask about a completion runs it, the others wait, and the result is kept for a while. The key is a digest of
all that decides the result: program, tests, limits, sandbox. A failure is not shared: when the run fails or is
cancelled, the next one who waits runs it. Results that depend on the clock are not kept beyond those who wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from grpo.rewards.code.results import CodeResult

_MOST = 2048
_MOST_TESTS = 200_000
_CLOCKED = ("time_cpu", "time_wall")

Running = dict[bytes, asyncio.Future[CodeResult]]


class Judgements:
    """Results by what was judged; for several threads and event loops."""

    def __init__(self, most: int = _MOST, most_tests: int = _MOST_TESTS) -> None:
        """Keeps at most so many results, with so many tests in all: those that were asked for last."""
        self._most, self._most_tests = most, most_tests
        self._tests = 0
        self._kept: OrderedDict[bytes, CodeResult] = OrderedDict()
        self._lock = threading.Lock()
        self._running: WeakKeyDictionary[asyncio.AbstractEventLoop, Running] = WeakKeyDictionary()

    async def once(self, what: object, run: Callable[[], Awaitable[CodeResult]], *, stop: bool) -> CodeResult:
        """Returns the result of something, from a run that is going on or has been, or from a new one.

        `what`: all that decides the result but `stop`; its `repr` must identify it. `run`: judges it. `stop`: the tests
        after the first failure do not matter; a result with all tests answers that too.
        """
        key = hashlib.sha256(repr(what).encode("utf-8", "surrogatepass")).digest()
        loop = asyncio.get_running_loop()
        with self._lock:
            running = self._running.setdefault(loop, {})
        while True:
            known = self._find(key)
            if known is None or not _answers(known, stop):
                if key not in running:
                    return await self._run(key, running, run)
                await asyncio.wait([other := running[key]])
                known = None if other.cancelled() else other.result()
            if known is not None and _answers(known, stop):
                return known.until_failure() if stop else known

    async def _run(self, key: bytes, running: Running, run: Callable[[], Awaitable[CodeResult]]) -> CodeResult:
        mine = running[key] = asyncio.get_running_loop().create_future()
        try:
            result = await run()
            self._keep(key, result)
            mine.set_result(result)
            return result
        finally:
            mine.cancel()
            del running[key]

    def _find(self, key: bytes) -> CodeResult | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: bytes, result: CodeResult) -> None:
        if any(test.outcome in _CLOCKED for test in result.tests):
            return
        with self._lock:
            before = self._kept.pop(key, None)
            self._tests += len(result.tests) - (len(before.tests) if before else 0)
            self._kept[key] = result
            while len(self._kept) > self._most or self._tests > self._most_tests:
                self._tests -= len(self._kept.popitem(last=False)[1].tests)


def _answers(result: CodeResult, stop: bool) -> bool:
    return stop or len(result.tests) == result.count


JUDGEMENTS = Judgements()
"""The judgements of this process."""
