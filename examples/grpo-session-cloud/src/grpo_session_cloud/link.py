"""Talks to the worker: starts it in Harbor's Python, sends requests, and says when it is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo import SandboxUnavailable, SessionError, SessionLost


class Link:
    """A worker and the requests that it has not answered; safe to use from several threads.

    Raises:
        SandboxUnavailable: the Python is not there, is too old, or has no `harbor`.
    """

    def __init__(self, python: str) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Mapping[str, Any]]] = {}
        self._sent = 0
        self._ended = ""  # why there will be no more answers
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        worker = Path(__file__).with_name("worker.py")
        try:
            self._process = subprocess.Popen(
                [python, "-u", worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
                start_new_session=True,  # Ctrl-C is the run's to handle; the worker ends with its stdin
            )
        except OSError as error:
            self._log.close()
            raise SandboxUnavailable(f"session cloud: cannot start {python}: {error.strerror}. {_ADVICE}") from None
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self._process.communicate()
            with self._log:
                raise SandboxUnavailable(f"session cloud: {python} ended with: {self._last_line()}. {_ADVICE}")
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def ask(self, do: str, **fields: Any) -> Mapping[str, Any]:
        """Sends a request and returns its answer.

        Raises:
            SessionError: the provider refused what was asked for.
            SessionLost: the provider failed, or the worker is gone.
        """
        future: Future[Mapping[str, Any]] = Future()
        with self._lock:
            if self._ended:
                raise SessionLost(f"session cloud: {self._ended}")
            self._sent += 1
            number = self._sent
            self._waiting[number] = future
        line = json.dumps({**fields, "do": do, "number": number}).encode() + b"\n"
        try:
            assert self._process.stdin is not None
            with self._lock:
                self._process.stdin.write(line)
                self._process.stdin.flush()
        except (OSError, ValueError):
            self._end()
        answer = future.result()
        if fault := answer.get("fault"):
            raise (SessionError if fault == "usage" else SessionLost)(f"session cloud: {answer['text']}")
        return answer

    def close(self) -> None:
        """Lets the worker remove its machines, and waits until it has; safe to call twice."""
        assert self._process.stdin is not None
        with self._lock, suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(300)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._receiver.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _receive(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["number"], None)
            if future is not None:
                future.set_result(answer)
        self._end()

    def _end(self) -> None:
        """Answers every request with the worker's end."""
        with self._lock:
            self._ended = self._ended or f"its worker ended: {self._last_line()}"
            waiting, self._waiting = [*self._waiting.values()], {}
        for future in waiting:
            future.set_result({"fault": "lost", "text": self._ended})

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"


_ADVICE = (
    "Harbor needs Python 3.12 or newer: make an environment for it (python3.12 -m venv harbor; harbor/bin/pip install "
    "harbor) and write --session cloud:python=harbor/bin/python"
)
