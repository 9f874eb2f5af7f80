"""A rollout server in a process of its own, to be killed and started again."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from patience import RUN

STARTED = re.compile(r"serving .* on (http://\S+) \(float32, 512 tokens, adapters up to rank 16\)")


class Server:
    """`grpo serve-rollouts` of the embedded model, as a user starts it."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def wait(self) -> None:
        """Waits until it serves."""
        for line in self.process.stdout or ():
            if found := STARTED.search(line):
                assert found[1] == self.url
                return
        pytest.fail(f"the server ended with code {self.process.wait()}")

    def start(self, *more: str) -> None:
        words = ["serve-rollouts", "--lora", "--context", "512", "--port", str(self._port), *more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grpo", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def kill(self) -> None:
        with self.process:
            self.process.kill()

    def stop(self) -> int:
        with self.process:
            self.process.send_signal(signal.SIGTERM)
            return self.process.wait(timeout=RUN)
