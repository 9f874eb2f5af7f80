"""Makes a session of a machine that can only run commands of a shell and take and give files."""

from __future__ import annotations

import base64
import io
import itertools
import posixpath
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from grpo import Exit, Process, Session, SessionError, SessionJob, SessionLost
from grpo_session_cloud.link import Link

DIRECTORY, HOME = "/workspace", "/home/agent"
CAPABILITIES = {"image": True, "network": True}
_GUEST = Path(__file__).with_name("guest.sh").read_bytes()
_VARIABLES = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": HOME, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
_PREPARED = f"mkdir -p /opt/grpo {DIRECTORY} {HOME} && chown 61000:61000 {DIRECTORY} {HOME} && chmod 1777 /"
_LIFE = "(sleep %d; sh /opt/grpo/guest.sh stop) >/dev/null 2>&1 &"
_ONE_FILE = '[ -f "$1" ] && [ "$(stat -f -c %T -- "$1")" != proc ] && cat -- "$1"'
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1" && chmod "$2" "$1"'
_WHOLE = 2**40
_WHILE_STARTING = 60.0


class Machine:
    """A session on a machine of a provider; see `grpo.Session`."""

    directory, home = DIRECTORY, HOME

    def __init__(self, link: Link, number: int, job: SessionJob, provider: str, image: str, options: Any) -> None:
        self._link, self._number, self._job = link, number, job
        self._calls = itertools.count()
        self._closed = False
        link.ask(
            "open",
            machine=number,
            provider=provider,
            image=job.image or image,
            network=job.network,
            memory_mb=max(1, job.limits.memory_bytes >> 20),
            storage_mb=max(1, job.limits.disk_bytes >> 20),
            options=options,
        )
        try:
            prepared = self.root(_PREPARED)
            if prepared["code"]:
                raise SessionLost(f"session cloud: the machine cannot be prepared: {prepared['stderr'].strip()[-300:]}")
            self.root(_LIFE % int(job.limits.seconds), files={"/opt/grpo/guest.sh": _GUEST})
            for path, content in job.files.items():
                self.write(path.replace("~", HOME, 1) if path.startswith("~/") else path, content)
        except BaseException:
            self.close()
            raise

    def root(
        self, command: str, *, files: Mapping[str, bytes] | None = None, seconds: float = 60.0
    ) -> Mapping[str, Any]:
        """Runs a command of sh as root, after files were uploaded."""
        if self._closed:
            raise SessionLost("session cloud: the session is closed.")
        packed = {path: base64.b64encode(content).decode() for path, content in (files or {}).items()}
        return self._link.ask("run", machine=self._number, command=command, files=packed, seconds=int(seconds) + 60)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        directory: str = "",
    ) -> Exit:
        """Runs a command; a status above 128 counts as the signal that a shell reports with it."""
        left, stdout, stderr = self._run(argv, stdin, env, timeout, directory, self._job.limits.output_bytes)
        with stdout, stderr:
            return replace(left, stdout=stdout.read(), stderr=stderr.read())

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, directory: str = "") -> Process:
        """Starts a command; its streams are files in the machine that are asked for again and again."""
        at = f"/opt/grpo/{next(self._calls)}"
        words = [posixpath.basename(at), str(self._job.limits.processes), *self._words(argv, env, directory)]
        begun = self.root(f"sh /opt/grpo/guest.sh start {shlex.join(words)} >/dev/null 2>&1")
        if begun["code"]:
            raise SessionError(f"session cloud: {argv[0]} cannot be started: {begun['stderr'].strip()[-300:]}")
        return cast(Process, Started(self, at))

    def read(self, path: str) -> bytes:
        """Returns the content of a file."""
        left, stdout, stderr = self._run(["sh", "-c", _ONE_FILE, "sh", path], b"", None, None, "", _WHOLE)
        with stdout, stderr:
            if left.code:
                raise SessionError(f"{path} is no file that can be read. {stderr.read(300).decode(errors='replace')}")
            return stdout.read()

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Writes a file, and the folders above it."""
        left = self.run(["sh", "-c", _WRITE, "sh", path, f"{mode:o}"], stdin=content)
        if left.code:
            raise SessionError(f"{path} cannot be written: {left.stderr.decode(errors='replace').strip()[-300:]}")

    def tar(self, path: str = "") -> BinaryIO:
        """Returns a file or folder as an open tar archive."""
        above, name = posixpath.split(posixpath.normpath(posixpath.join(DIRECTORY, path)))
        left, stdout, stderr = self._run(["tar", "-C", above, "-cf", "-", "--", name], b"", None, None, "", _WHOLE)
        stderr.close()
        if left.code:
            stdout.close()
            raise SessionError(f"{path or DIRECTORY} cannot be packed.")
        return stdout

    def port(self, number: int) -> str:
        """Raises SessionError: no port of such a machine is reached."""
        raise SessionError("session cloud: no port of a machine can be reached. Use the session local or docker.")

    def stop(self) -> None:
        """Kills every process of the session's user."""
        self.root("sh /opt/grpo/guest.sh stop; true")

    def snapshot(self) -> str:
        """Raises SessionError: not every provider can."""
        raise SessionError("session cloud: it takes no snapshots. Use the session local or docker.")

    def fork(self, snapshot: str) -> Session:
        """Raises SessionError: there is no snapshot."""
        raise SessionError(f"session cloud: there is no snapshot {snapshot}.")

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what the machine can do."""
        return CAPABILITIES

    def close(self) -> None:
        """Removes the machine."""
        if not self._closed:
            self._closed = True
            with suppress(SessionLost):  # it is gone, or the provider will end it when its time is up
                self._link.ask("close", machine=self._number)

    def _words(self, argv: Sequence[str], env: Mapping[str, str] | None, directory: str) -> list[str]:
        variables = {**_VARIABLES, **self._job.environment, **(env or {})}
        return [directory or DIRECTORY, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *argv]

    def _run(
        self,
        argv: Sequence[str],
        stdin: bytes,
        env: Mapping[str, str] | None,
        timeout: float | None,
        directory: str,
        most: int,
    ) -> tuple[Exit, BinaryIO, BinaryIO]:
        limits = self._job.limits
        seconds = min(limits.seconds, timeout or limits.seconds)
        at = f"/opt/grpo/{next(self._calls)}"
        words = [posixpath.basename(at), f"{seconds:g}", str(most), str(limits.processes)]
        command = f"mkdir -p {at} && " + shlex.join(
            ["sh", "/opt/grpo/guest.sh", "run", *words, *self._words(argv, env, directory)]
        )
        began = time.monotonic()
        if stdin:
            self.root(f"mkdir -p {at}")
        answer = self.root(command, files={f"{at}/in": stdin} if stdin else None, seconds=seconds)
        lines = answer["stdout"].split("\n")
        try:
            code, late, *sizes = map(int, lines[0].split())
        except ValueError:
            raise SessionLost(f"session cloud: a command left no result: {answer['stderr'].strip()[-300:]}") from None
        left = Exit(
            code=None if lines[1] else 128 - code if code > 128 else code,
            timed_out=bool(late),
            omitted=sum(max(0, size - most) for size in sizes),
            seconds=time.monotonic() - began,
            problem=lines[1],
        )
        if len(lines) > 3:
            return left, io.BytesIO(base64.b64decode(lines[2])), io.BytesIO(base64.b64decode(lines[3]))
        stdout, stderr = self._download(f"{at}/out"), self._download(f"{at}/err")
        self.root(f"rm -rf {at}")
        return left, stdout, stderr

    def _download(self, path: str) -> BinaryIO:
        with tempfile.NamedTemporaryFile() as file:
            self._link.ask("download", machine=self._number, path=path, to=file.name)
            return Path(file.name).open("rb")


class Started:
    """A program that was started; see `grpo.Process`."""

    def __init__(self, machine: Machine, at: str) -> None:
        self._machine, self._at = machine, at
        self.stdin = cast(BinaryIO, _Input(machine, at))
        self.stdout = cast(BinaryIO, _Output(machine, self, f"{at}/out"))
        self.stderr = cast(BinaryIO, _Output(machine, self, f"{at}/err"))

    def wait(self, timeout: float | None = None) -> int | None:
        """Returns the status, or None where the program still runs."""
        end = time.monotonic() + (timeout if timeout is not None else self._machine._job.limits.seconds)
        for pause in _pauses():
            text = self._machine.root(f"cat {self._at}/code 2>/dev/null")["stdout"].strip()
            if text:
                return 128 - int(text) if int(text) > 128 else int(text)
            if time.monotonic() >= end:
                return None
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
        return None

    def kill(self) -> None:
        """Kills the program and its process group."""
        holder, pid = f'"$(cat {self._at}/holder)"', f'"-$(cat {self._at}/pid)"'
        self._machine.root(f"[ -f {self._at}/code ] || kill -s KILL -- {pid}; kill {holder}; true")

    def close(self) -> None:
        """Kills it and closes its streams."""
        with suppress(SessionLost):
            self.kill()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


class _Input(io.RawIOBase):
    """Writes to the named pipe that is a program's input."""

    def __init__(self, machine: Machine, at: str) -> None:
        self._machine, self._at = machine, at

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        piece = f"{self._at}/piece"
        self._machine.root(f"cat {piece} >{self._at}/in; rm {piece}", files={piece: bytes(content)})
        return len(content)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with suppress(SessionLost):
                self._machine.root(f'kill "$(cat {self._at}/holder)"; true')


class _Output(io.RawIOBase):
    """Reads the file that a program writes to, until the program has ended."""

    def __init__(self, machine: Machine, process: Started, path: str) -> None:
        self._machine, self._process, self._path = machine, process, path
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        for pause in _pauses():
            status = self._process.wait(0.0)
            most = min(len(buffer), 65536)
            asked = f"tail -c +{self._position + 1} {self._path} 2>/dev/null | head -c {most} | base64 -w 0"
            content = base64.b64decode(self._machine.root(asked)["stdout"])
            if content or status is not None:
                buffer[: len(content)] = content
                self._position += len(content)
                return len(content)
            time.sleep(pause)
        return 0


def _pauses() -> Any:
    """Yields the seconds between two questions: short at first, then longer, up to a second."""
    pause = 0.05
    while True:
        yield pause
        pause = min(1.0, pause * 1.5)
