"""Sends requests of many threads to a library's graders in sandboxes.

Theory of operation. Requests that arrive while others are graded go together into the sandbox's next program. A request
whose process fails is tried once more alone, after one that is known to work: if only this one fails again, its text is
the cause; if both fail, it is a failure. A request that used up its processor time is not tried again.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from grpo.envs.graders import guest
from grpo.envs.graders.process import LimitedProcess
from grpo.plugins.errors import SandboxUnavailable, TransientError
from grpo.plugins.pools import pool_of, run_jobs
from grpo.plugins.sandbox_job import Job, JobResult, Limits

_TOGETHER = 32  # requests of one program
_TRIES = 2
_OUTPUT = 16 * 2**20
_FUTURE = "from __future__ import annotations\n"
_BY_THE_MACHINE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


Run = Callable[[Job], JobResult]
PROCESS = "process"
"""In the place of a sandbox's SPEC: a process with limits and an empty environment, which is no wall."""


def runner(package: str, sandbox: str = "") -> Run:
    """Returns what runs jobs that may import a package, in a sandbox (`PROCESS`: a process with limits)."""
    if sandbox != PROCESS:
        spec = f"{sandbox or 'local'}{',' if ':' in sandbox else ':'}packages={package}"
        try:
            pool_of(spec)
        except SandboxUnavailable as error:
            if sandbox:
                raise
            warnings.warn(
                f"the graders of {package} run in a process with limits, but can read files and use the network: "
                f"{error}",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            return lambda job: run_jobs([job], spec)[0]
    return LimitedProcess(package).run


@dataclass(frozen=True, slots=True)
class Reply:
    """What a grader said."""

    value: Any  # as JSON holds it; None where the grader cannot stand the text
    reason: str = ""  # why not, or ""


@dataclass(eq=False, slots=True)
class _Asked:
    request: Any
    works: Sequence[Any]
    alone: bool
    reply: Future[Reply] = field(default_factory=Future)


class Graders:
    """The graders of one library, whose guest module has a function `handle`; safe in threads."""

    def __init__(self, name: str, module: ModuleType, run: Run, *, seconds: float, memory: int) -> None:
        own, loop = (inspect.getsource(each).replace(_FUTURE, "") for each in (module, guest))
        self._name = name
        self._program = f"{_FUTURE}{loop}\n{own}\nserve(handle)\n"
        self._run_job = run
        self._seconds = seconds
        self._memory = memory
        self._lock = threading.Lock()
        self._waiting: deque[_Asked] = deque()
        self._most_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._threads = 0

    def ask(self, request: Any, works: Sequence[Any], *, alone: bool = False) -> Reply:
        """Has one request handled, `alone` in its process; one of `works` has a value wherever the grader works."""
        asked = _Asked(request, works, alone)
        with self._lock:
            self._waiting.append(asked)
            starts = self._threads < self._most_threads
            self._threads += starts
        if starts:
            threading.Thread(target=self._drain, name=f"grpo-grade-{self._name}", daemon=True).start()
        return asked.reply.result()

    def _drain(self) -> None:
        while True:
            with self._lock:
                batch = self._next()
                if not batch:
                    self._threads -= 1
                    return
            try:
                self._handle(batch)
            except Exception as error:
                for asked in batch:
                    if not asked.reply.done():
                        asked.reply.set_exception(error)

    def _next(self) -> list[_Asked]:
        batch: list[_Asked] = []
        while self._waiting and len(batch) < _TOGETHER and not (batch and (batch[0].alone or self._waiting[0].alone)):
            batch.append(self._waiting.popleft())
        return batch

    def _handle(self, batch: list[_Asked]) -> None:
        while batch:
            replies, result = self._run([asked.request for asked in batch])
            for asked, reply in zip(batch, replies, strict=False):
                if "value" in reply:
                    asked.reply.set_result(Reply(reply["value"]))
                else:
                    self._decide(asked, slow=False)
            if len(replies) < len(batch):
                used_up = result.outcome == "signalled" and result.signal == signal.SIGPROF
                self._decide(batch[len(replies)], slow=used_up or result.outcome == "time_cpu")
            batch = batch[len(replies) + 1 :]

    def _decide(self, asked: _Asked, *, slow: bool) -> None:
        """Settles a request without a value: is the cause the text, or the machine?"""
        works = list(asked.works)
        replies, result = self._run(works if slow else [*works, asked.request])
        if not any("value" in reply for reply in replies[: len(works)]):
            reason = replies[-1]["raised"] if replies else f"{result.outcome} {result.reason}".strip()
            error = TransientError(
                f"the grader of {self._name} does not work here, not even at a known answer: {reason}"
            )
            asked.reply.set_exception(error)
            return
        if slow:
            asked.reply.set_result(Reply(None, f"the grader took more than {self._seconds:g} s of processor time"))
        elif len(replies) > len(works):
            last = replies[-1]
            asked.reply.set_result(
                Reply(last["value"]) if "value" in last else Reply(None, f"the grader raised {last['raised']}")
            )
        elif _by_the_machine(result):
            asked.reply.set_exception(
                TransientError(f"the process of the grader of {self._name} was ended: {_ending(result)}")
            )
        else:
            asked.reply.set_result(Reply(None, f"the process of the grader ended: {_ending(result)}"))

    def _run(self, requests: Sequence[Any]) -> tuple[list[dict[str, Any]], JobResult]:
        """The replies, and how the process ended. Raises TransientError if the sandbox failed several times."""
        cpu = self._seconds * len(requests) + 5
        limits = Limits(cpu, 3 * cpu + 10, self._memory, _OUTPUT)
        job = Job(self._program, pickle.dumps((self._seconds, requests), protocol=5), limits=limits)
        for _ in range(_TRIES):
            result = self._run_job(job)
            if not result.trouble:
                lines = result.stdout.split(b"\n")[:-1][: len(requests)]
                return [json.loads(line) for line in lines], result
        raise TransientError(
            f"what runs the graders of {self._name} failed {_TRIES} times: {result.outcome} {result.reason}"
        )


def _by_the_machine(result: JobResult) -> bool:
    """Whether the process may have ended for reasons other than the text."""
    return result.outcome == "time_wall" or (result.outcome == "signalled" and result.signal in _BY_THE_MACHINE)


def _ending(result: JobResult) -> str:
    if result.outcome == "exited":
        return f"with exit code {result.exit_code}"
    if result.outcome == "signalled" and result.signal is not None:
        return f"by {signal.Signals(result.signal).name}"
    return result.outcome
