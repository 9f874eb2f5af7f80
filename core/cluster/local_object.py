"""An object in a process of its own on this machine: messages as bytes in, answers out, as with one on another node.

Theory of operation. The process is a fresh interpreter in a session of its own that ignores Ctrl-C. Each message is
answered in a thread of its own there. When the process ends, whatever it was asked fails; it ends by itself when this
process does, since its connection closes.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from grpo.core.cluster.ray_cluster import NodeLost
from grpo.plugins.errors import RunError

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo.core.cluster.local_object import main; main(int(sys.argv[2]), *sys.argv[3:])"
)
_GRACE = 5.0


class LocalObject:
    """Makes an object of "module:Class" in a process of its own.

    Args:
        kind: "module:Class".
        settings: the arguments of the class; values that JSON has.
    """

    def __init__(self, kind: str, settings: Mapping[str, Any]) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[bytes]] = {}
        self._lock = threading.Lock()
        self._ended = ""
        self._connection, theirs = Pipe()
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100 - '' means the working folder
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, path, str(theirs.fileno()), kind, json.dumps(dict(settings))],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        self._finalizer = weakref.finalize(self, _kill, self._process)
        threading.Thread(target=_listen, args=(weakref.ref(self), self._connection), daemon=True).start()

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"process {self._process.pid}"

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._ended and self._process.poll() is None

    def ask(self, method: str, message: bytes = b"") -> Future[bytes]:
        """Calls a method of the object with bytes; the future raises `NodeLost`, or a `RunError` of what it raised."""
        answer: Future[bytes] = Future()
        with self._lock:
            if self._ended:
                answer.set_exception(NodeLost(self._ended, for_good=True))
                return answer
            number = next(self._numbers)
            self._waiting[number] = answer
            with suppress(OSError):  # it has ended, which the listener finds
                self._connection.send_bytes(json.dumps([number, method]).encode())
                self._connection.send_bytes(message)
        return answer

    def end(self) -> None:
        """Kills the process and whatever it started."""
        self._finalizer()

    def hear(self, number: int, problem: str, answer: bytes) -> None:
        """Settles what was asked."""
        with self._lock:
            waiting = self._waiting.pop(number, None)
        if waiting is not None and problem:
            waiting.set_exception(RunError(problem))
        elif waiting is not None:
            waiting.set_result(answer)

    def lose(self) -> None:
        """Fails whatever was asked, once the process has closed its connection."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self._finalizer()
        with self._lock:
            code = self._process.returncode
            how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended ({code})"
            self._ended = f"its process {how}"
            waiting, self._waiting = self._waiting, {}
        self._connection.close()
        for one in waiting.values():
            one.set_exception(NodeLost(self._ended, for_good=True))


def _listen(owner: weakref.ref[LocalObject], connection: Connection) -> None:
    """Hands answers on until the process ends; holds the object only while it does so."""
    while True:
        try:
            number, problem = json.loads(connection.recv_bytes())
            answer = connection.recv_bytes()
        except (EOFError, OSError):
            break
        if (found := owner()) is not None:
            found.hear(number, problem, answer)
        del found
    if (found := owner()) is not None:
        found.lose()
    else:
        connection.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)


def main(socket: int, kind: str, settings: str) -> None:
    """Answers until the other side hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection, lock = Connection(socket), threading.Lock()
    module, _, name = kind.partition(":")
    made = getattr(importlib.import_module(module), name)(**json.loads(settings))

    def answer(number: int, method: str, message: bytes) -> None:
        problem, found = "", b""
        try:
            found = getattr(made, method)(message)
        except BaseException:  # what runs here may call sys.exit()
            problem = traceback.format_exc().strip().splitlines()[-1]
        with lock, suppress(OSError):
            connection.send_bytes(json.dumps([number, problem]).encode())
            connection.send_bytes(found)

    while True:
        try:
            number, method = json.loads(connection.recv_bytes())
            message = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        threading.Thread(target=answer, args=(number, method, message), daemon=True).start()
