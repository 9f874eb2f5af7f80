"""Runs an object in a child process (plugins/child_process.py) that answers messages like an object on another node."""

from __future__ import annotations

import itertools
import json
import os
import pkgutil
import socket
import threading
import traceback
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from grpo.core.cluster.ray_cluster import NodeLost
from grpo.plugins.child_process import ChildProcess, receive_message, send_message
from grpo.plugins.errors import RunError

_GRACE = 5.0


class LocalObject:
    """Makes an object of `kind`, "module:Class", in a process of its own; its arguments are values that JSON has."""

    def __init__(self, kind: str, settings: Mapping[str, Any]) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[bytes]] = {}
        self._lock = threading.Lock()
        self._ended = ""
        self._child = ChildProcess(
            "grpo.core.cluster.local_object", [kind, dict(settings)], environment={"OMP_NUM_THREADS": "1", **os.environ}
        )
        self._finalizer = weakref.finalize(self, self._child.end)
        threading.Thread(target=_listen, args=(weakref.ref(self), self._child.channel), daemon=True).start()

    @property
    def name(self) -> str:
        return f"process {self._child.pid}"

    @property
    def alive(self) -> bool:
        return not self._ended and not self._child.gone()

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
                send_message(self._child.channel, json.dumps([number, method]).encode())
                send_message(self._child.channel, message)
        return answer

    def end(self) -> None:
        """Kills the process and its children."""
        self._finalizer()

    def hear(self, number: int, problem: str, answer: bytes) -> None:
        with self._lock:
            waiting = self._waiting.pop(number, None)
        if waiting is not None and problem:
            waiting.set_exception(RunError(problem))
        elif waiting is not None:
            waiting.set_result(answer)

    def lose(self) -> None:
        """Fails all open calls, once the process has closed its socket."""
        self._child.end(_GRACE)
        with self._lock:
            self._ended = f"its process {self._child.ending()}"
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(NodeLost(self._ended, for_good=True))


def _listen(owner: weakref.ref[LocalObject], channel: socket.socket) -> None:
    """Passes answers on until the process ends; holds the object only while it does so."""
    while True:
        try:
            number, problem = json.loads(receive_message(channel))
            answer = receive_message(channel)
        except OSError:
            break
        if (target := owner()) is not None:
            target.hear(number, problem, answer)
        del target
    if (target := owner()) is not None:
        target.lose()
    else:
        channel.close()


def main(descriptor: int, kind: str, settings: Mapping[str, Any]) -> None:
    """Answers until the other side hangs up."""
    channel, lock = socket.socket(fileno=descriptor), threading.Lock()
    # Else a process that the object leaves behind would keep the other side waiting.
    channel.set_inheritable(False)
    os.register_at_fork(after_in_child=channel.close)
    made = pkgutil.resolve_name(kind)(**settings)

    def answer(number: int, method: str, message: bytes) -> None:
        problem, payload = "", b""
        try:
            payload = getattr(made, method)(message)
        except BaseException:  # what runs here may call sys.exit()
            problem = traceback.format_exc().strip().splitlines()[-1]
        with lock, suppress(OSError):
            send_message(channel, json.dumps([number, problem]).encode())
            send_message(channel, payload)

    while True:
        try:
            number, method = json.loads(receive_message(channel))
            message = receive_message(channel)
        except OSError:
            os._exit(0)
        threading.Thread(target=answer, args=(number, method, message), daemon=True).start()
