"""Opens local sessions and sends their operations to process 1 of each."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from grpo.plugins.child_process import ChildProcess
from grpo.plugins.errors import SandboxUnavailable, SessionError, SessionLost
from grpo.plugins.session import DIRECTORY, HOME, Exit, Session, SessionJob
from grpo.rewards.sandbox import cgroup
from grpo.rewards.sandbox.bundle import memory_file
from grpo.rewards.session.owned import own
from grpo.rewards.session.proxy import Port, Proxy
from grpo.rewards.session.request import absolute, environment_of, most_files, packed, refuse_missing, unfit
from grpo.rewards.session.streams import Collector
from grpo.rewards.session.wire import receive, send

_FIRST_USER = 0x68000000  # far from any account, and from those of sandboxes
_USERS = 0x07000000
_START_SECONDS = 60.0
_OWN_MEMORY = 64 * 2**20  # of process 1, which files in memory must leave room for
_EXPIRED = "the time of the session is up"
_LAST_WORDS = 10.0  # seconds for a launcher that ends its sessions
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_serial = itertools.count(os.getpid() * 64)


class _Refused(SessionLost):
    """The machine allows no session."""


class LocalPool:
    """Sessions of this machine; see `grpo.plugins.session.SessionPool`. Raises SandboxUnavailable: it allows none."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise SandboxUnavailable("the session 'local' needs Linux. Run it there, or name a session of a plugin.")
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[LocalSession] = weakref.WeakSet()
        self._closed = False
        self.proxy = Proxy()
        self.reap()
        self._launcher = self._launched()
        try:
            self.open(SessionJob()).close()
        except SessionLost as error:
            self.close()
            remedy = "Try again, or name another session."
            if isinstance(error, _Refused):
                remedy = (
                    "Allow user namespaces with `sysctl kernel.unprivileged_userns_clone=1` or `sysctl "
                    "kernel.apparmor_restrict_unprivileged_userns=0`, or name another session."
                )
            raise SandboxUnavailable(f"the session 'local' cannot be used here: {error} {remedy}") from error

    def open(self, job: SessionJob) -> LocalSession:
        files = memory_file("grpo-files", packed(job.files, DIRECTORY)) if job.files else -1
        try:
            return self.opened(job, files)
        finally:
            if files >= 0:
                os.close(files)

    def opened(self, job: SessionJob, files: int) -> LocalSession:
        """Opens a session with the files of an archive, a descriptor, or -1. Raises SessionError, SessionLost."""
        if job.image:
            raise SessionError(f"the session 'local' has no images, and {job.image!r} is asked for. Leave it out.")
        refuse_missing(job.shared)
        try:
            try:
                session, listeners = self._begun(job, files)
            except ConnectionError:  # the launcher was killed; nothing has run in the session that it had begun
                session, listeners = self._begun(job, files)
        except ConnectionError as error:
            raise SessionLost(
                "no session can be made: its helper process was killed, as when the machine runs out of memory."
            ) from error
        except OSError as error:
            raise SessionLost(f"no session can be made: {error}.") from error
        for listener, address in zip(listeners, job.reach.values(), strict=True):
            session.ports.append(self.proxy.serve(socket.socket(fileno=listener), address))
        with self._lock:
            self._sessions.add(session)
        return session

    def _begun(self, job: SessionJob, files: int) -> tuple[LocalSession, list[int]]:
        """The session and the sockets of its ports to addresses outside. Raises OSError, SessionLost."""
        group = _group(job)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._launch(theirs.fileno())
            if files >= 0:
                os.lseek(files, 0, os.SEEK_SET)
            send(ours, _plan(job, group), [files] if files >= 0 else [])
            ours.settimeout(_START_SECONDS)
            answer, listeners = receive(ours)
            if "ready" not in answer:
                lost = _Refused if answer["refused"] else SessionLost
                raise lost(f"no session can be made: {answer['error']}.")
        except (OSError, SessionLost):
            ours.close()
            if group:
                group.remove()
            raise
        ours.settimeout(None)
        own(ours)
        return LocalSession(self, job, ours, group), listeners

    def capabilities(self) -> Mapping[str, bool]:
        given = ("network", "port", "reach", "shared paths", "snapshot", "no network", "disk limit", "file limit")
        return {**dict.fromkeys(given, True), "image": False, "cgroup memory": bool(cgroup.places())}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        self.proxy.close()
        self._launcher.end(_LAST_WORDS)

    @classmethod
    def reap(cls) -> int:
        """Removes the control groups of crashed runs; nothing else can be left of a session."""
        return cgroup.reap()

    def _launched(self) -> ChildProcess:
        launcher = ChildProcess("grpo.rewards.session.launcher", [os.getpid()], environment={"PATH": _PATH})
        own(launcher.channel)
        return launcher

    def _launch(self, descriptor: int) -> None:
        """Has a keeper forked; replaces a launcher that was killed."""
        with self._lock:
            if self._closed:
                raise SessionLost("the pool of sessions is closed.")
            try:
                socket.send_fds(self._launcher.channel, [b"x"], [descriptor])
            except OSError:
                self._launcher.end()
                self._launcher = self._launched()
                socket.send_fds(self._launcher.channel, [b"x"], [descriptor])


class LocalSession:
    """One session of this machine; see `grpo.plugins.session.Session`."""

    directory = DIRECTORY
    home = HOME

    def __init__(self, pool: LocalPool, job: SessionJob, control: socket.socket, group: cgroup.Group | None) -> None:
        self._pool, self._job, self._control, self._group = pool, job, control, group
        self._lock = threading.Lock()
        self._snapshots: dict[str, int] = {}
        self.ports: list[Port] = []  # the way to each address outside, and to each port inside
        self._closed = False

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        directory: str = "",
    ) -> Exit:
        began = time.monotonic()
        reads, writes = zip(*(os.pipe() for _ in range(2)), strict=True)
        given = memory_file("grpo-stdin", stdin)
        try:
            os.lseek(given, 0, os.SEEK_SET)
            try:
                if refused := unfit(argv):
                    return Exit(None, problem=refused)
                answers = self._begin(argv, env, directory, [given, *writes], confirm=False)
            finally:
                for descriptor in (given, *writes):
                    os.close(descriptor)
            for descriptor in reads:
                os.set_blocking(descriptor, False)
            process = _Running(answers)
            collector = Collector(reads, self._job.limits.output_bytes)
            timed_out = not collector.until(answers.fileno(), timeout, process.hear)
            if timed_out:
                process.kill()
                collector.until(answers.fileno(), None, process.hear)
            collector.rest()
            stdout, stderr = map(bytes, collector.texts)
            if problem := _refusal(process.answer):
                expired = problem == _EXPIRED
                return Exit(None, timed_out=expired, problem=problem)
            code, over = process.ending()
            return Exit(
                code,
                stdout,
                stderr,
                timed_out=timed_out or over.get("timed_out", False),
                out_of_memory=over.get("out_of_memory", False) or (code != 0 and self._memory_was_short()),
                omitted=collector.omitted,
                seconds=time.monotonic() - began,
            )
        finally:
            for descriptor in reads:
                os.close(descriptor)

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, directory: str = "") -> LocalProcess:
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = (os.pipe() for _ in range(3))
        try:
            if refused := unfit(argv):
                raise SessionError(f"{refused}.")
            answers = self._begin(argv, env, directory, [in_read, out_write, err_write], confirm=True)
            try:
                answer, _ = receive(answers)
            except OSError as error:
                answers.close()
                raise SessionLost("the session was ended while a program was started in it.") from error
            if refused := _refusal(answer):
                answers.close()
                raise SessionError(f"{refused}.")
        except BaseException:
            for descriptor in (in_write, out_read, err_read):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (in_read, out_write, err_write):
                os.close(descriptor)
        return LocalProcess(_Running(answers), in_write, out_read, err_read)

    def read(self, path: str) -> bytes:
        answer, [file] = self._ask({"do": "open", "path": self._path(path), "write": False}, about=path)
        with open(file, "rb") as content:
            if answer["opened"] > self._job.limits.disk_bytes:  # it has holes
                raise SessionError(f"{path!r} has {answer['opened']:,} bytes, more than the session's files may have.")
            return content.read(answer["opened"])

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        request = {"do": "open", "path": self._path(path), "write": True, "mode": mode}
        _, [file] = self._ask(request, about=path)
        try:
            with open(file, "wb", buffering=0) as target:
                view = memoryview(content)
                while view:
                    view = view[target.write(view) :]
        except OSError as error:
            raise SessionError(f"{path!r} cannot be written in the session: {error.strerror}.") from error

    def tar(self, path: str = "") -> BinaryIO:
        whole = self._path(path) if path else self.directory
        archive = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            name = os.path.basename(whole.rstrip("/")) or "."
            self._ask({"do": "pack", "path": whole, "name": name}, [archive.fileno()], about=path or whole)
        except BaseException:
            archive.close()
            raise
        archive.seek(0)
        return archive

    def port(self, number: int) -> str:
        port, address = self._pool.proxy.offer(lambda: self.connected(number))
        with self._lock:
            self.ports.append(port)
        return address

    def connected(self, number: int) -> socket.socket:
        """Returns a socket that is connected to a port of the session. Raises SessionError, SessionLost."""
        _, [connection] = self._ask({"do": "connect", "port": number}, about=f"port {number}")
        return socket.socket(fileno=connection)

    def stop(self) -> None:
        self._ask({"do": "stop"}, about="the processes")

    def snapshot(self) -> str:
        with tempfile.TemporaryFile() as archive:
            self._ask({"do": "pack", "all": True}, [archive.fileno()], about="the files")
            with self._lock:
                name = f"snapshot-{len(self._snapshots)}"
                self._snapshots[name] = os.dup(archive.fileno())
        return name

    def fork(self, snapshot: str) -> Session:
        with self._lock:
            if snapshot not in self._snapshots:
                raise SessionError(f"the session has no snapshot {snapshot!r}.")
            archive = os.open(f"/proc/self/fd/{self._snapshots[snapshot]}", os.O_RDONLY)  # with a position of its own
        try:
            return self._pool.opened(self._job, archive)
        finally:
            os.close(archive)

    def capabilities(self) -> Mapping[str, bool]:
        return self._pool.capabilities()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for archive in self._snapshots.values():
                os.close(archive)
            self._snapshots.clear()
        with contextlib.suppress(OSError):
            self._control.settimeout(_START_SECONDS)
            self._control.shutdown(socket.SHUT_WR)  # process 1 ends, and then its keeper
            while self._control.recv(1 << 16):
                pass  # an answer that nobody asked for any more
        for port in self.ports:
            port.close()
        self._control.close()
        if self._group:
            self._group.remove()

    def _path(self, path: str) -> str:
        return absolute(path, self.directory)

    def _memory_was_short(self) -> bool:
        with self._lock:
            return self._group is not None and self._group.why_ended() == "limit"

    def _begin(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        directory: str,
        streams: Sequence[int],
        *,
        confirm: bool,
    ) -> socket.socket:
        """Returns the socket that says how the program ends, and with `confirm` first that it runs."""
        request = {
            "do": "start",
            "argv": [*argv],
            "environment": {"PATH": _PATH, **environment_of(self._job), **(env or {})},
            "directory": self._path(directory) if directory else self.directory,
            "confirm": confirm,
        }
        answers = self._asked(request, streams)
        own(answers)
        return answers

    def _ask(self, request: Any, descriptors: Sequence[int] = (), *, about: str) -> tuple[Any, list[int]]:
        """Asks process 1. Raises SessionError, SessionLost."""
        with self._asked(request, descriptors) as answers:
            try:
                answer, received = receive(answers)
            except OSError as error:
                if self.gone():
                    raise self._lost() from error
                raise SessionError(f"{about!r}: the session was stopped meanwhile.") from error
        if "error" in answer:
            raise SessionError(f"{about!r}: {answer['error']}.")
        return answer, received

    def _asked(self, request: Any, descriptors: Sequence[int]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                send(self._control, request, [theirs.fileno(), *descriptors])
        except OSError as error:
            ours.close()
            raise self._lost() from error
        return ours

    def gone(self) -> bool:
        """Returns whether process 1 has ended."""
        try:
            return not self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _lost(self) -> SessionLost:
        return SessionLost("the session is closed." if self._closed else "the session was ended from outside.")


def _refusal(answer: dict[str, Any] | None) -> str:
    answer = answer or {}
    return _EXPIRED if answer.get("expired") else str(answer.get("error", ""))


class _Running:
    """A program that was started: what its socket says of its end."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self.answer: dict[str, Any] | None = None

    def hear(self) -> bool:
        """Takes what the socket has; returns whether there is an answer."""
        with self._lock:
            if self.answer is None:
                try:
                    self.answer, _ = receive(self._answers)
                except (TimeoutError, BlockingIOError):
                    return False
                except OSError:
                    self.answer = {}
                self._answers.close()
        return True

    def wait(self, seconds: float | None) -> bool:
        """Returns whether there is an answer after so many seconds."""
        if self.answer is not None:
            return True
        try:
            self._answers.settimeout(seconds)
        except OSError:  # another thread has heard it
            return True
        return self.hear()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            send(self._answers, {"kill": True})

    def close(self) -> None:
        """Kills the program, if it still runs, and hears no more of it."""
        self._answers.close()

    def ending(self) -> tuple[int, dict[str, bool]]:
        """Returns the status and why it was ended. Raises SessionLost."""
        answer = dict(self.answer or {})
        if "code" not in answer:
            raise SessionLost("the session was ended while a program ran in it.")
        return answer.pop("code"), answer


class LocalProcess:
    """A program that runs in a local session; see `grpo.plugins.session.Process`."""

    def __init__(self, running: _Running, stdin: int, stdout: int, stderr: int) -> None:
        self._running = running
        self.stdin: BinaryIO = open(stdin, "wb", buffering=0)  # noqa: SIM115
        self.stdout: BinaryIO = open(stdout, "rb", buffering=0)  # noqa: SIM115
        self.stderr: BinaryIO = open(stderr, "rb", buffering=0)  # noqa: SIM115

    def wait(self, timeout: float | None = None) -> int | None:
        return self._running.ending()[0] if self._running.wait(timeout) else None

    def kill(self) -> None:
        self._running.kill()

    def close(self) -> None:
        self._running.close()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                stream.close()


def _plan(job: SessionJob, group: cgroup.Group | None) -> dict[str, Any]:
    user, other = os.geteuid(), os.getegid()
    if user == 0:
        user = other = _FIRST_USER + next(_serial) % _USERS
    return {
        "user": user,
        "group": other,
        "cgroups": group.entries() if group else [],
        "network": job.network,
        "reach": [*job.reach],
        "shared": [*job.shared],
        "hidden": [*job.hidden],
        "directory": DIRECTORY,
        "home": HOME,
        "disk": job.limits.disk_bytes,
        "files": most_files(job.limits.disk_bytes),
        "memory": job.limits.memory_bytes,
        "processes": job.limits.processes,
        "seconds": job.limits.seconds,
    }


def _group(job: SessionJob) -> cgroup.Group | None:
    """The control group that limits the session's memory, if the machine has any. Raises SessionLost."""
    places = {name: folder for name, folder in cgroup.places().items() if name != "cpuacct"}
    if not places:
        return None
    group = cgroup.Group(places)
    try:
        group.limit(max(job.limits.memory_bytes, job.limits.disk_bytes + _OWN_MEMORY))
    except OSError as error:
        group.remove()
        raise SessionLost(f"the memory of a session cannot be limited: {error}.") from error
    return group
