"""Starts child processes that answer messages over a socket, and ends them.

A child is a fresh interpreter in a session of its own, with this process's import path, an empty stdin and only the
environment variables that it is given. It runs `main(descriptor, *arguments)` of a module and ends when its socket
closes, as it does when this process dies. Ctrl-C does not reach it.

A message is its length in 8 bytes, the highest first, and its bytes. This process may send pickles. Where a child runs
what a policy wrote, its answers are read as JSON or as plain bytes and never unpickled.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

LENGTH = struct.Struct(">Q")
_START = (
    "import importlib, json, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(int(sys.argv[3]), *json.loads(sys.argv[4]))"
)
_LOOK = 0.01  # seconds from one look at an ending process to the next
_GIVE_UP = 5.0  # seconds for a process that even SIGKILL does not end: the kernel waits for a disk or a network


class ChildProcess:
    """One child process, with the socket `channel` to it.

    `module`: whose `main` it runs. `arguments`: of `main` after the descriptor of its socket, JSON values.
    `environment`: its environment variables. `stdout`, `stderr`: as of `subprocess.Popen`; by default this process's
    stderr. `descriptors`: files that it keeps open beside its socket.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[object] = (),
        *,
        environment: Mapping[str, str],
        stdout: int = 2,
        stderr: int | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self.channel, theirs = socket.socketpair()
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100 - '' is the working folder
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, path, module, str(theirs.fileno()), json.dumps([*arguments])],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(theirs.fileno(), *descriptors),
                start_new_session=True,
                env=dict(environment),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def reaped(self) -> bool:
        """Whether it has ended and its number may belong to another process by now."""
        return self._process.returncode is not None

    def gone(self) -> bool:
        """Returns whether it has ended; it keeps its number until it is reaped."""
        if self.reaped:
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13, where asking reaps it
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def signal(self, number: int) -> None:
        if not self.gone():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it and every process of its session."""
        if not self.reaped:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Notes how it ended, if it has, and closes its socket."""
        self._process.poll()
        self.channel.close()

    def end(self, seconds: float = 0.0) -> None:
        """Closes its socket, on which it ends by itself, and kills it with its session after so many seconds."""
        self.channel.close()
        deadline = time.monotonic() + seconds
        while not self.gone() and time.monotonic() < deadline:
            time.sleep(_LOOK)
        self.kill()
        self.wait(_GIVE_UP)

    def wait(self, seconds: float) -> int | None:
        """Returns how it ended, as `Popen.returncode`; None where it still runs after so many seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def forget(self) -> None:
        """Drops, in a forked process, a child that belongs to its parent."""
        self.channel.close()
        self._process.returncode = 0

    def ending(self) -> str:
        """Returns how it ended: "was killed by SIGSEGV"."""
        code = self._process.returncode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        return f"was killed by {signal.Signals(-code).name if -code in {*signal.Signals} else f'signal {-code}'}"


def send_message(channel: socket.socket, data: bytes) -> None:
    channel.sendall(LENGTH.pack(len(data)) + data)


def receive_message(channel: socket.socket) -> bytes:
    """Returns the next message; ConnectionError where the other end is gone, TimeoutError at the socket's limit."""
    [size] = LENGTH.unpack(receive_exactly(channel, LENGTH.size))
    return receive_exactly(channel, size)


def receive_exactly(channel: socket.socket, size: int) -> bytes:
    """Returns so many bytes; raises as `receive_message`."""
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("the other end is gone")
        data += piece
    return bytes(data)


def receive_descriptors(channel: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Returns a packet of at most so many bytes and its descriptors, which no started program inherits.

    `socket.recv_fds` ignores the flag that sees to that.
    """
    data, ancillary, _, _ = channel.recvmsg(size, socket.CMSG_LEN(most * 4), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    return data, [number for _, _, numbers in ancillary for number in array.array("i", numbers)]
