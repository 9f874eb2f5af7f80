"""Starts, talks to, kills and reaps a worker process.

It exchanges messages with `core/scoring/workers/child.py`. Only the pool's one thread calls it, and it never blocks.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from grpo.core.scoring.workers.child import LENGTH

_LAST_WORDS = 0.3
_GIVE_UP = 5.0
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo.core.scoring.workers.child import main; main(*map(int, sys.argv[2:]))"
)


class Worker:
    """One worker process.

    Attributes:
        channel: the socket to it.
        loaded: keys of the plugins that it has loaded.
        rows_done: how many rows it has scored.

    Args:
        memory: bytes of private memory that it may use, 0 for any.
    """

    def __init__(self, memory: int) -> None:
        self.channel, theirs = socket.socketpair()
        self.loaded: set[int] = set()
        self.rows_done = 0
        self._crash = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._kill_at: float | None = None
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100 - '' means the working folder
        numbers = (theirs.fileno(), self._crash.fileno(), os.getpid(), memory)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, path, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=numbers[:2],
                start_new_session=True,
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        self.channel.setblocking(False)

    @property
    def sending(self) -> bool:
        """Whether bytes wait to be sent."""
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
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def stop(self) -> None:
        """Ends it: SIGABRT first, on which it writes down where it was, and SIGKILL for its session soon after."""
        self.expect_end()
        if not self.gone():
            os.kill(self._process.pid, signal.SIGABRT)

    def expect_end(self) -> None:
        """Gives it a moment to end by itself before it is killed."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _LAST_WORDS

    def kill(self) -> None:
        """Ends it and every process of its session at once."""
        self._kill_at = min(self._kill_at or math.inf, time.monotonic())
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> bool:
        """Returns whether it is over: kills it when its moment is up, and frees the channel at the end.

        A process that even SIGKILL does not end (the kernel waits for a disk or a network) counts as over after 5 s.
        """
        if self._process.returncode is not None:
            return True
        now = time.monotonic()
        if not self.gone():
            if self._kill_at is None or now < self._kill_at:
                return False
            self.kill()
            if now < self._kill_at + _GIVE_UP:
                return False
        self.kill()
        self._process.poll()
        self.channel.close()
        return True

    def ending(self) -> str:
        """Says how it ended, for a reason: "was killed by SIGSEGV"."""
        code = self._process.returncode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

    def stack(self) -> str:
        """Returns the stack that a fatal error left, once, and closes the file that held it."""
        with self._crash as file:
            file.seek(0)
            return file.read(20_000).decode(errors="replace")


def default_memory() -> int:
    """Returns the bytes of private memory that a worker may use: half of this machine's, at least 1 GiB."""
    return max(1 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
