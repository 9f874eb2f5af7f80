"""Starts, talks to, kills and reaps a worker process, without blocking, for the pool's one thread."""

from __future__ import annotations

import math
import os
import pickle
import signal
import tempfile
import time
from typing import Any

from grpo.plugins.child_process import LENGTH, ChildProcess

_LAST_WORDS = 0.3
_GIVE_UP = 5.0


class Worker:
    """One worker process, which may use `memory` bytes of private memory, 0 for any."""

    def __init__(self, memory: int) -> None:
        self.loaded: set[int] = set()
        self.rows_done = 0
        self._crash = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._kill_at: float | None = None
        crash = self._crash.fileno()
        self._child = ChildProcess(
            "grpo.core.scoring.workers.child",
            [crash, os.getpid(), memory],
            environment={"OMP_NUM_THREADS": "1", **os.environ},
            descriptors=[crash],
        )
        self.channel = self._child.channel
        self.channel.setblocking(False)

    @property
    def sending(self) -> bool:
        return bool(self._outgoing)

    def send(self, message: tuple[Any, ...]) -> None:
        """Queues a message and sends what can be sent at once."""
        data = pickle.dumps(message, protocol=5)
        self._outgoing += LENGTH.pack(len(data)) + data
        self.flush()

    def flush(self) -> None:
        """Sends what can be sent at once; a worker that hung up is noticed when it is read."""
        try:
            while self._outgoing:
                del self._outgoing[: self.channel.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError:
            self._outgoing.clear()

    def receive(self) -> tuple[list[tuple[Any, ...]], bool]:
        """Returns the messages that have arrived, and whether the worker hung up."""
        ended = False
        while True:
            try:
                data = self.channel.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                ended = True
                break
            self._incoming += data
        messages = []
        at = 0
        while len(self._incoming) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._incoming, at)
            if len(self._incoming) - at - LENGTH.size < size:
                break
            messages.append(pickle.loads(self._incoming[at + LENGTH.size : at + LENGTH.size + size]))
            at += LENGTH.size + size
        del self._incoming[:at]
        return messages, ended

    def gone(self) -> bool:
        """Returns whether the process has ended; it keeps its number until it is reaped."""
        return self._child.gone()

    def stop(self) -> None:
        """Ends it: SIGABRT first, on which it writes down where it was, and SIGKILL for its session soon after."""
        self.expect_end()
        self._child.signal(signal.SIGABRT)

    def expect_end(self) -> None:
        """Gives it a moment to end by itself before it is killed."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _LAST_WORDS

    def kill(self) -> None:
        """Ends it and every process of its session at once."""
        self._kill_at = min(self._kill_at or math.inf, time.monotonic())
        self._child.kill()

    def reap(self) -> bool:
        """Returns whether it is over; one that SIGKILL does not end (a disk, a network) counts as over after 5 s."""
        if self._child.reaped:
            return True
        now = time.monotonic()
        if not self.gone():
            if self._kill_at is None or now < self._kill_at:
                return False
            self.kill()
            if now < self._kill_at + _GIVE_UP:
                return False
        self.kill()
        self._child.reap()
        return True

    def ending(self) -> str:
        """Says how it ended, for a reason: "was killed by SIGSEGV"."""
        ending = self._child.ending()
        return f"{ending} (out of memory?)" if ending.endswith("SIGKILL") else ending

    def stack(self) -> str:
        """Returns the stack that a fatal error left, once, and closes the file that held it."""
        with self._crash as file:
            file.seek(0)
            return file.read(20_000).decode(errors="replace")


def default_memory() -> int:
    """Returns the bytes of private memory that a worker may use: half of this machine's, at least 1 GiB."""
    return max(1 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
