"""Serves one local session as process 1 of its namespaces: starts programs, opens and packs files, and kills.

Theory of operation. The owner sends requests over the control socket, each with a socket of its own for the answers; a
program's answers are that it started and how it ended. Programs get no capability, no way to regain one, limits and a
control group before their first instruction. Process 1 keeps its capabilities over the session's own files, so that no
program may look into it, and never follows a path with them: files are opened with a program's rights. When the control
socket closes, process 1 ends, and the kernel kills every other process of the session.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import socket
import stat
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn

from grpo.plugins import kernel
from grpo.rewards.sandbox.inside.seccomp import session_filter
from grpo.rewards.session.wire import receive, send

_OURS = 8  # processes that count as the session's: this one, its keeper and what it forks to pack files
_LONGEST_FAULT = 1000
_LOOK = 0.1  # seconds from one look at the memory to the next, where no control group limits it
_PAGE = resource.getpagesize()
_CONTROL, _WAKE = 0, -1  # marks of descriptors; those of children are their numbers
_FILTER = session_filter()


@dataclass(slots=True)
class _Child:
    answers: socket.socket  # the socket for what is said about it
    program: bool  # it is one of the session's, and not a fork of process 1
    fault_reader: int = -1  # the descriptor on which the fork of a program says why it could not become it; else -1
    over: dict[str, bool] = field(default_factory=dict)  # why it was ended, as the answer says


def serve(control: socket.socket, plan: dict[str, Any], processes: int, files: int) -> NoReturn:
    """Serves until the control socket closes; ends the process.

    `processes`: a descriptor of a writable /proc. `files`: that of an archive with the session's first files, or -1.
    """
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # what the kernel says of it in /proc is none of the programs' business
    _ProcessOne(control, plan, processes, files).run()
    os._exit(0)


class _ProcessOne:
    def __init__(self, control: socket.socket, plan: dict[str, Any], processes: int, files: int) -> None:
        self._control, self._plan, self._proc, self._files = control, plan, processes, files
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, _CONTROL)
        wake, waker = os.pipe()
        for descriptor in (wake, waker):
            os.set_blocking(descriptor, False)
        self._selector.register(wake, selectors.EVENT_READ, _WAKE)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._deadline = time.monotonic() + plan["seconds"]
        self._expired = False
        self._processes = os.stat("/proc").st_dev
        self._requests: dict[str, Callable[[Any, list[int], socket.socket], None]] = {
            "start": self._start,
            "open": self._open,
            "pack": self._pack,
            "connect": self._connect,
            "stop": self._stop,
        }

    def run(self) -> None:
        listeners = []
        for port in self._plan["reach"]:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
            listeners.append(listener)
        if self._files >= 0:
            kernel.set_effective_capabilities(0)
            with open(self._files, "rb") as file, tarfile.open(fileobj=file, mode="r|") as archive:
                archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # from Python 3.11.4 on
                archive.extractall("/")
            kernel.set_effective_capabilities(-1)
        send(self._control, {"ready": True}, [listener.fileno() for listener in listeners])
        for listener in listeners:
            listener.close()
        while True:
            for key, _ in self._selector.select(self._pause()):
                if key.data == _CONTROL:
                    try:
                        request, descriptors = receive(self._control)
                    except OSError:
                        self._end_all({})
                        return
                    self._answer(request, descriptors)
                elif key.data == _WAKE:
                    with contextlib.suppress(BlockingIOError):
                        os.read(key.fd, 512)
                else:
                    self._hear(key.data)
            self._reap()
            self._look()

    def _answer(self, request: Any, descriptors: list[int]) -> None:
        """The first descriptor is the socket for the answers."""
        answers = socket.socket(fileno=descriptors[0])
        try:
            self._requests[request["do"]](request, descriptors[1:], answers)
        except OSError as error:
            with contextlib.suppress(OSError):
                send(answers, {"error": error.strerror or str(error)})
            answers.close()
        finally:
            for descriptor in descriptors[1:]:
                os.close(descriptor)

    def _start(self, request: Any, streams: list[int], answers: socket.socket) -> None:
        """Starts a program with three streams; answers that it started, and later how it ended."""
        if self._expired:
            send(answers, {"expired": True})
            answers.close()
            return
        fault_reader, fault_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become_program(request, streams, fault_writer)
        os.close(fault_writer)
        self._watch(pid, _Child(answers, program=True, fault_reader=fault_reader))
        if request["confirm"]:
            fault = os.read(fault_reader, _LONGEST_FAULT)  # nothing, when the program has taken the place of its fork
            send(answers, {"error": fault.decode(errors="replace")} if fault else {"started": pid})

    def _become_program(self, request: Any, streams: list[int], fault_writer: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            for handled in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT):
                signal.signal(handled, signal.SIG_DFL)
            os.setsid()
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
            self._limit()
            _give_up_rights()
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            score = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=self._proc)
            os.write(score, b"1000")  # when memory runs out, the kernel ends programs of sessions first, not process 1
            os.close(score)
            os.chdir(request["directory"])
            os.execvpe(request["argv"][0], request["argv"], request["environment"])
        except (OSError, ValueError) as error:
            name = request["argv"][0] if isinstance(error, FileNotFoundError | PermissionError) else "it"
            why = error.strerror if isinstance(error, OSError) else str(error)
            os.write(fault_writer, f"{name!r:.200} cannot be started: {why}".encode(errors="replace"))
        finally:
            os._exit(127)

    def _limit(self) -> None:
        most = self._plan["processes"] + _OURS
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self._plan["cgroups"]:
            memory = self._plan["memory"]
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    def _open(self, request: Any, _: list[int], answers: socket.socket) -> None:
        """Answers with the descriptor of a plain file, opened with the rights that programs have."""
        path, write = request["path"], request["write"]
        kernel.set_effective_capabilities(0)
        try:
            if write:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, request["mode"])
            else:
                file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            kernel.set_effective_capabilities(-1)
        try:
            left = os.fstat(file)
            if not stat.S_ISREG(left.st_mode) or left.st_dev == self._processes:
                raise OSError("it is no plain file")
            if write:
                os.ftruncate(file, 0)
                with contextlib.suppress(PermissionError):  # it was there and belongs to the machine
                    os.fchmod(file, request["mode"])
            send(answers, {"opened": left.st_size}, [file])
        finally:
            os.close(file)
            answers.close()

    def _pack(self, request: Any, descriptors: list[int], answers: socket.socket) -> None:
        """Writes a file or folder as a tar archive to a descriptor; with `all`, every file of the session."""
        paths = _own_paths("/") if request.get("all") else [request["path"]]

        def work() -> None:
            with open(descriptors[0], "wb", closefd=False) as file, tarfile.open(fileobj=file, mode="w|") as archive:
                for path in paths:
                    _add(archive, path, request.get("name") or path.lstrip("/"))

        if not request.get("all"):
            os.lstat(paths[0])
        self._fork(work, answers, rights=bool(request.get("all")))

    def _connect(self, request: Any, _: list[int], answers: socket.socket) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection, answers:
            connection.connect(("127.0.0.1", request["port"]))
            send(answers, {"connected": True}, [connection.fileno()])

    def _stop(self, _: Any, __: list[int], answers: socket.socket) -> None:
        with answers:
            self._end_all({})
            send(answers, {"stopped": True})

    def _fork(self, work: Callable[[], None], answers: socket.socket, *, rights: bool) -> None:
        """Does work in a fork, with or without this process's rights over files; answers when it is done."""
        pid = os.fork()
        if pid:
            self._watch(pid, _Child(answers, program=False))
            return
        try:
            signal.set_wakeup_fd(-1)
            if not rights:
                _give_up_rights()
            work()
            send(answers, {"done": True})
        except (OSError, tarfile.TarError) as error:
            send(answers, {"error": getattr(error, "strerror", None) or str(error)})
        finally:
            os._exit(0)

    def _watch(self, pid: int, child: _Child) -> None:
        self._children[pid] = child
        self._selector.register(child.answers, selectors.EVENT_READ, pid)

    def _hear(self, pid: int) -> None:
        """Kills a program and its process group: the owner asks for it, or does not listen any more."""
        child = self._children.get(pid)
        if child is None:
            return
        gone = False
        try:
            receive(child.answers)
        except OSError:
            gone = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL) if child.program else os.kill(pid, signal.SIGKILL)
        if gone:
            self._selector.unregister(child.answers)
            child.answers.close()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._note(*ended)

    def _note(self, pid: int, status: int) -> None:
        child = self._children.pop(pid, None)
        if child is None:
            return  # an orphan
        fault = b""
        if child.fault_reader >= 0:
            fault = os.read(child.fault_reader, _LONGEST_FAULT)
            os.close(child.fault_reader)
        if child.answers.fileno() >= 0:
            self._selector.unregister(child.answers)
            if child.program:
                with contextlib.suppress(OSError):
                    code = os.waitstatus_to_exitcode(status)
                    failed = {"error": fault.decode(errors="replace")}
                    send(child.answers, failed if fault else {"code": code, **child.over})
            child.answers.close()

    def _end_all(self, over: dict[str, bool]) -> None:
        for child in self._children.values():
            child.over = over
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            while True:
                os.kill(-1, signal.SIGKILL)
                self._note(*os.waitpid(-1, 0))
        with contextlib.suppress(ChildProcessError):
            while True:
                self._note(*os.waitpid(-1, 0))

    def _pause(self) -> float | None:
        if self._expired:
            return None
        left: float = max(0.0, self._deadline - time.monotonic())
        return left if self._plan["cgroups"] else min(left, _LOOK)

    def _look(self) -> None:
        """Ends every program when the session's time is up, or its memory, where no control group limits that."""
        if not self._expired and time.monotonic() >= self._deadline:
            self._expired = True
            self._end_all({"timed_out": True})
        elif not self._plan["cgroups"] and _memory_of_others() > self._plan["memory"]:
            self._end_all({"out_of_memory": True})


def _give_up_rights() -> None:
    """Gives up every capability, the way to regain one, and the calls that no honest program makes."""
    kernel.drop_bounding_set()
    kernel.set_capabilities(0)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.install(_FILTER)


def _own_paths(root: str) -> list[str]:
    device = os.lstat(root).st_dev
    return [entry.path for entry in os.scandir(root) if entry.stat(follow_symlinks=False).st_dev == device]


def _add(archive: tarfile.TarFile, path: str, name: str) -> None:
    """Follows no link and reads only what the session can have made."""
    device = os.lstat(path).st_dev
    linked: dict[int, str] = {}
    waiting = [(path, name)]
    while waiting:
        path, name = waiting.pop()
        with contextlib.suppress(FileNotFoundError):  # it has just been removed
            left = os.lstat(path)
            if left.st_dev == device:
                _add_one(archive, path, name, left, linked)
                below = os.listdir(path) if stat.S_ISDIR(left.st_mode) else []
                waiting += [(f"{path.rstrip('/')}/{entry}", f"{name}/{entry}") for entry in sorted(below, reverse=True)]


def _add_one(archive: tarfile.TarFile, path: str, name: str, left: os.stat_result, linked: dict[int, str]) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = stat.S_IMODE(left.st_mode), left.st_mtime
    if stat.S_ISREG(left.st_mode) and left.st_nlink > 1 and left.st_ino in linked:
        entry.type, entry.linkname = tarfile.LNKTYPE, linked[left.st_ino]
    elif stat.S_ISREG(left.st_mode):
        linked[left.st_ino] = name
        if shut := not left.st_mode & stat.S_IRUSR:  # its owner may not read it, but may change that
            os.chmod(path, entry.mode | stat.S_IRUSR)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if shut:
            os.fchmod(descriptor, entry.mode)
        with open(descriptor, "rb") as file:
            entry.size = os.fstat(descriptor).st_size
            archive.addfile(entry, _Exactly(file, entry.size))
        return
    elif stat.S_ISDIR(left.st_mode):
        entry.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(left.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISFIFO(left.st_mode):
        entry.type = tarfile.FIFOTYPE
    else:
        return  # a socket
    archive.addfile(entry)


class _Exactly:
    """Reads so many bytes of a file: zeros where it has become shorter since it was looked at."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1, /) -> bytes:
        most = self._left if size < 0 else min(size, self._left)
        data = self._file.read(most)
        self._left -= most
        return data + bytes(most - len(data))


def _memory_of_others() -> int:
    """Bytes that all other processes of the session have for themselves."""
    pages = 0
    for name in os.listdir("/proc"):
        if name.isdecimal() and name != "1":
            with contextlib.suppress(OSError), open(f"/proc/{name}/statm", encoding="utf-8") as file:
                _, resident, shared, *_ = file.read().split()
                pages += int(resident) - int(shared)
    return pages * _PAGE
