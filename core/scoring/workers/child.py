"""Runs in a worker process: reads rows from a socket and answers one message a call.

Theory of operation. It is started as in plugins/child_process.py. The kernel kills it when its parent dies (Linux), and
first when memory runs out. A result is sent before the next row begins, so the parent always knows which row a worker
died on. After a MemoryError the worker asks to be replaced.

    in:  (key, packed plugin or None, retries, several rows a call?, [(indices, rows) of a call], items as bytes)
    out: ("importing", module) ("imported",), inside a call
         ("loaded",) ("unloadable", text) ("unreadable", text) ("again", delay) ("retire", try the row again?)
         ("done", seconds of the call without its imports, [(index, result)], failure in full or None)
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import functools
import importlib
import itertools
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grpo.core.scoring.call import Caller
from grpo.core.scoring.outcome import Judgement, Outcome, Result
from grpo.core.scoring.process_state import ProcessState
from grpo.core.scoring.workers.transport import unpack
from grpo.core.text.streams import LimitedStream
from grpo.plugins import kernel
from grpo.plugins.child_process import receive_message, send_message
from grpo.plugins.types import Completion, Verdict

Wire = tuple[Any, ...]


def main(socket_fd: int, crash_fd: int, parent: int, memory: int) -> None:
    """Serves rows until the socket closes. `memory`: bytes of private memory that the process may use, 0 for any."""
    faulthandler.enable(file=crash_fd)
    _die_with(parent)
    _limit(memory)
    sys.stdout, sys.stderr = LimitedStream(sys.stdout), LimitedStream(sys.stderr)
    Child(socket.socket(fileno=socket_fd)).serve()


class Child:
    """The worker's loop and the plugins that it has loaded."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._callers: dict[int, Caller] = {}
        self._details: str | None = None
        self._served = 0
        self._spent = False
        self._imports = ImportWatch(lambda module: self._tell("importing", module), lambda: self._tell("imported"))
        self._calling = False

    def serve(self) -> None:
        """Answers messages until the parent hangs up."""
        self._imports.install()
        while True:
            try:
                message = receive_message(self._channel)
            except ConnectionError:
                return
            self._answer(pickle.loads(message))

    def _answer(self, message: Wire) -> None:
        key, packed, retries, together, calls, items = message
        if packed is not None:
            try:
                self._callers[key] = Caller(unpack(packed), retries=retries, report=self._keep, alone=True)
            except BaseException:  # loading runs the plugin's own module, which may also call sys.exit()
                self._send("unloadable", traceback.format_exc())
                return
            self._send("loaded")
        try:
            completions = iter([read_item(item) for item in pickle.loads(items)])
        except BaseException:
            self._send("unreadable", traceback.format_exc())
            return
        caller, state = self._callers[key], ProcessState()
        call = caller.many if together else caller.each
        for indices, rows in calls:
            own = list(itertools.islice(completions, len(indices)))
            self._imports.forget()
            started = time.perf_counter()
            self._calling = True
            results = call(own, rows, self._pause)
            self._calling = False
            if self._spent and self._served:  # what filled the memory may be an earlier row's
                self._send("retire", True)
                return
            self._done(started, indices, results)
            if self._spent:
                self._send("retire", False)
                return
        state.put_back()

    def _done(self, started: float, indices: Sequence[int], results: Sequence[Result]) -> None:
        if os.getpid() != self._pid:  # the plugin forked, and its child came back here
            os._exit(0)
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that the plugin left set would hit the next row
        details, self._details = self._details, None
        wires = [(index, to_wire(result)) for index, result in zip(indices, results, strict=True)]
        self._served += len(wires)
        seconds = max(0.0, time.perf_counter() - started - self._imports.seconds)
        self._send("done", seconds, wires, details)

    def _tell(self, *message: str) -> None:
        if self._calling and os.getpid() == self._pid:
            self._send(*message)

    def _pause(self, seconds: float) -> None:
        self._send("again", seconds)
        time.sleep(seconds)

    def _keep(self, text: str, error: BaseException | None) -> None:
        self._details = self._details or text
        self._spent = self._spent or isinstance(error, MemoryError)

    def _send(self, *message: Any) -> None:
        send_message(self._channel, pickle.dumps(message, protocol=5))


class ImportWatch:
    """Times the imports that a plugin makes inside its calls; `seconds` is what they took since the last call began.

    A finder in `sys.meta_path` that finds nothing sees every load begin; loads end where the outermost import statement
    or `import_module` ends, both of which are wrapped. The thread that made the watch is watched, and no other.
    """

    def __init__(self, begun: Callable[[str], None], ended: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._begun, self._ended = begun, ended
        self._thread = threading.get_ident()
        self._inside = False
        self._loading: float | None = None  # since when

    def install(self) -> None:
        builtins.__import__ = self._watched(builtins.__import__)
        importlib.import_module = self._watched(importlib.import_module)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Finds nothing, and notes that a module is not loaded yet."""
        if self._inside and self._loading is None and threading.get_ident() == self._thread:
            self._loading = time.perf_counter()
            self._begun(name)

    def forget(self) -> None:
        """Forgets what was counted, before the next call."""
        self.seconds = 0.0

    def _watched(self, load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def watched(*arguments: Any, **keywords: Any) -> Any:
            if self._inside or threading.get_ident() != self._thread:
                return load(*arguments, **keywords)
            self._inside = True
            try:
                return load(*arguments, **keywords)
            finally:
                self._inside = False
                if self._loading is not None:
                    self.seconds += time.perf_counter() - self._loading
                    self._loading = None
                    self._ended()

        return watched


def to_wire(result: Result) -> Wire:
    if isinstance(result, Outcome):
        return tuple(result)
    verdict = result.verdict
    return (result.kind, None if verdict is None else (verdict.ok, verdict.extracted, verdict.reason), result.reason)


def from_wire(wire: Wire) -> Result:
    if len(wire) == 6:
        return Outcome(*wire)
    kind, verdict, reason = wire
    return Judgement(kind, None if verdict is None else Verdict(*verdict), reason)


def read_item(item: Any) -> Completion:
    """Returns the completion that an item of a message stands for: whole, or text, columns and turns."""
    return item if isinstance(item, Completion) else Completion(item[0], row=item[1], turns=item[2])


def _die_with(parent: int) -> None:
    kernel.die_with_parent()
    if kernel.LINUX:
        with contextlib.suppress(OSError):  # a hardened /proc: the order of victims is then the kernel's
            Path("/proc/self/oom_score_adj").write_text("1000")
    if os.getppid() != parent:
        os._exit(1)


def _limit(memory: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory and sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
