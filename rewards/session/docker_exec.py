"""Runs one command in a container through the engine's API: streams, exit status, and the end of its process group.

The API does not tell the process number inside a container and cannot end a command. So a shell there writes its own
number as the first line of stdout, and then becomes the command. It waits for a line of input first: the SDK drops what
is written before it has read the head of the engine's answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from grpo.plugins.errors import SessionError, SessionLost

_BEGIN = """\
read grpo_path
grpo_path=
case $1 in
  */*) grpo_path=$1 ;;
  *) IFS=:
     for grpo_folder in $PATH; do
       if [ -f "$grpo_folder/$1" ] && [ -x "$grpo_folder/$1" ]; then grpo_path=$grpo_folder/$1; break; fi
     done
     unset IFS ;;
esac
if [ -f "$grpo_path" ] && [ -x "$grpo_path" ]; then echo $$; exec "$@"; fi
if [ -e "$grpo_path" ]; then echo '!Permission denied'; else echo '!No such file or directory'; fi"""
_STDOUT = 1
_HEAD = 8  # bytes before each piece of a stream
_READ = 1 << 16
_SIGNALLED = 128  # the engine adds the number of a signal to it
_SIGNALS = 64
_FULL = 0.2  # seconds between looks whether a program whose output nobody reads was killed

Take = Callable[[int, bytes], None]


class Execution:
    """A command in a container, by its id, with variables beside those of the image.

    `process`: the number of its process and process group in the container; 0 before it is known. `problem`: why it did
    not start, or "". Raises docker.errors.APIError, OSError: the engine refuses it, or is gone.
    """

    def __init__(
        self,
        api: Any,
        container: str,
        argv: Sequence[str],
        *,
        user: str,
        environment: Mapping[str, str] | None = None,
        directory: str = "/",
    ) -> None:
        self.process, self.problem = 0, ""
        self._api = api
        command = ["sh", "-c", _BEGIN, "sh", *argv]
        options = {"environment": dict(environment or {}), "workdir": directory, "user": user}
        self._id = api.exec_create(container, command, stdin=True, **options)["Id"]
        self._attached = api.exec_start(self._id, socket=True)
        self.socket: Any = getattr(self._attached, "_sock", self._attached)
        self.socket.settimeout(None)
        with contextlib.suppress(OSError):  # it has ended already
            self.socket.sendall(b"\n")
        self._pending = bytearray()  # of the engine's stream
        self._first = bytearray()  # of stdout, until its first line is whole

    @property
    def begun(self) -> bool:
        """True when it is known whether the command started."""
        return bool(self.process or self.problem)

    def read(self, take: Take, seconds: float | None, *, begin: bool = False) -> bool:
        """Hands over each piece of the streams (0 or 1); False when the time is up first.

        `seconds`: how long to read; None: to the end. `begin`: return as soon as it is known whether it started.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not (begin and self.begun):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and (left <= 0 or not select.select([self.socket], [], [], left)[0]):
                return False
            try:
                piece = self.socket.recv(_READ)
            except ConnectionError:
                piece = b""
            if not piece:
                if not self.begun:
                    self.problem = bytes(self._first).decode(errors="replace").strip() or "the engine does not start it"
                return True
            self._pending += piece
            while len(self._pending) >= _HEAD:
                kind, size = struct.unpack(">BxxxI", self._pending[:_HEAD])
                if len(self._pending) < _HEAD + size:
                    break
                data = bytes(self._pending[_HEAD : _HEAD + size])
                del self._pending[: _HEAD + size]
                self._hand_over(take, kind, data)
        return True

    def _hand_over(self, take: Take, kind: int, data: bytes) -> None:
        if kind == _STDOUT and not self.begun:
            self._first += data
            line, end, data = bytes(self._first).partition(b"\n")
            if not end:
                return
            if line.isdigit():
                self.process = int(line)
            else:
                self.problem = line.decode(errors="replace").removeprefix("!").strip()  # or it is the engine's
        if data:
            take(kind - 1, data)

    def feed(self, content: bytes) -> None:
        """Gives the command its whole input."""

        def send() -> None:
            with contextlib.suppress(OSError):
                self.socket.sendall(content)
                self.end_input()

        if content:
            threading.Thread(target=send, name="grpo-session-stdin", daemon=True).start()
        else:
            self.end_input()

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Ends the streams; the command lives on."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def status(self) -> int | None:
        """Returns how it ended, as in `Exit.code`; None where the engine does not know."""
        code: int | None = self._api.exec_inspect(self._id)["ExitCode"]
        return _SIGNALLED - code if code and _SIGNALLED < code <= _SIGNALLED + _SIGNALS else code

    def close(self) -> None:
        """Closes the connection; the command lives on."""
        self.cut()
        self._attached.close()
        self.socket.close()


class DockerProcess:
    """A program that runs in a container; see `grpo.plugins.session.Process`.

    `early`: its first output, by stream. `end`: kills its process group. `ending`: returns its status when its streams
    have ended; raises SessionLost.
    """

    def __init__(
        self,
        execution: Execution,
        early: Sequence[tuple[int, bytes]],
        end: Callable[[Execution], None],
        ending: Callable[[Execution], int],
    ) -> None:
        self._execution, self._end, self._ending = execution, end, ending
        self._done = threading.Event()
        self._killed = False
        self._result: int | SessionLost = 0
        reads, self._writes = zip(*(os.pipe() for _ in range(2)), strict=True)
        for descriptor in self._writes:
            os.set_blocking(descriptor, False)
        self.stdin: BinaryIO = _Input(execution)  # type: ignore[assignment]
        self.stdout: BinaryIO = open(reads[0], "rb", buffering=0)  # noqa: SIM115
        self.stderr: BinaryIO = open(reads[1], "rb", buffering=0)  # noqa: SIM115
        self._thread = threading.Thread(target=self._pump, args=[early], name="grpo-session-process", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> int | None:
        if not self._done.wait(timeout):
            return None
        if isinstance(self._result, SessionLost):
            raise self._result
        return self._result

    def kill(self) -> None:
        self._killed = True
        if not self._done.is_set():
            with contextlib.suppress(SessionLost, SessionError):
                self._end(self._execution)

    def close(self) -> None:
        self.kill()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                stream.close()
        self._thread.join()

    def _pump(self, early: Sequence[tuple[int, bytes]]) -> None:
        try:
            for stream, data in early:
                self._pass_on(stream, data)
            self._execution.read(self._pass_on, None)
            self._result = self._ending(self._execution)
        except SessionLost as error:
            self._result = error
        except SessionError:
            self._result = -signal.SIGKILL
        except OSError as error:
            self._result = SessionLost(f"the connection to the container engine broke: {error}.")
        finally:
            self._execution.close()
            self._done.set()
            for descriptor in self._writes:
                os.close(descriptor)

    def _pass_on(self, stream: int, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._killed:
            if select.select([], [self._writes[stream]], [], _FULL)[1]:
                try:
                    view = view[os.write(self._writes[stream], view) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return


class _Input(io.RawIOBase):
    """The input of a program; closing it ends the program's input."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._execution.socket.sendall(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._execution.end_input()
        super().close()
