"""Defines a session, the machine of one episode: its request, the result of a command, and the plugin's interface.

An environment whose episodes have a session takes the option `session`, a SPEC, and its instances have the method
`open_session(**fields) -> Session`. An agent that runs in the session calls it after `reset` and before any command,
with fields of `SessionJob`: `reach`, `shared` and `hidden`. `step` then kills every process that is left and grades.
Its info may have `MACHINE_SECONDS`, so that a run warns of a busy machine.

Commands run one after the other or at the same time. Trouble of the session itself is a `SessionLost`, which is no
score; trouble of a program, such as a memory limit, is an `Exit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, runtime_checkable

DIRECTORY = "/workspace"
HOME = "/home/agent"
MACHINE_SECONDS = "machine_seconds"
"""In the info of an episode's last step: how long its machine took for the policy's commands and for the grader."""
CAPABILITIES = ("build", "image", "network", "port", "reach", "shared paths", "snapshot")
"""What a session may be able to do, by the names that `capabilities` uses; a protection has a name, too. One that can
`build` takes the path of a folder with a Dockerfile in the place of the name of an image."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What all programs of a session may use together.

    Attributes:
        memory_bytes: memory; the files that they write count as well where the session keeps them in memory.
        disk_bytes: files.
        processes: processes and threads that live at once.
        seconds: the life of the session; when it is over, every process is killed and the files stay until `close`.
        output_bytes: stdout and stderr of one command, each; what is beyond is read and thrown away.
    """

    memory_bytes: int = 2 * 2**30
    disk_bytes: int = 2**30
    processes: int = 512
    seconds: float = 3600.0
    output_bytes: int = 2**20


@dataclass(frozen=True, slots=True)
class SessionJob:
    """The machine that an episode wants.

    Attributes:
        image: what it begins with, by a name that the plugin knows; "": the plugin's default.
        files: path to content. A relative path is below the working directory; missing folders are made.
        network: whether programs reach the network of the host; otherwise they reach themselves and `reach`.
        reach: a port of the session's 127.0.0.1 to the address outside, "HOST:PORT", that answers there.
        shared: files and folders of this machine that programs may read, at their own paths.
        hidden: files and folders of this machine that programs must not see, though they lie in what is shared or among
            the system's: tasks with their graders and solutions.
        environment: variables of every command, beside PATH, HOME, LANG and TMPDIR.
        limits: what programs may use.
    """

    image: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    network: bool = False
    reach: Mapping[int, str] = field(default_factory=dict)
    shared: Sequence[str] = ()
    hidden: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: SessionLimits = field(default_factory=SessionLimits)


@dataclass(frozen=True, slots=True)
class Exit:
    """What a command left.

    Attributes:
        code: its exit status, or minus the number of the signal that ended it; None where it did not start.
        stdout: what it wrote, up to the limit.
        stderr: likewise.
        timed_out: it was ended because its time, or that of the session, was up.
        out_of_memory: it was ended at the session's limit of memory.
        omitted: how many bytes of stdout and stderr were over the limit.
        seconds: from start to end.
        problem: why it did not start; "" otherwise.
    """

    code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    out_of_memory: bool = False
    omitted: int = 0
    seconds: float = 0.0
    problem: str = ""


@runtime_checkable
class Process(Protocol):
    """A program that runs in a session.

    Attributes:
        stdin: takes bytes; closing it ends the program's input. Unbuffered.
        stdout: what the program writes. Unbuffered; it must be read, or the program waits.
        stderr: likewise.
    """

    stdin: BinaryIO
    stdout: BinaryIO
    stderr: BinaryIO

    def wait(self, timeout: float | None = None) -> int | None:
        """Returns the status, as in `Exit.code`; None if it still runs after so many seconds. Raises SessionLost."""

    def kill(self) -> None:
        """Kills the program and its process group; safe to call when it has ended."""

    def close(self) -> None:
        """Kills it and closes its streams; safe to call twice."""


@runtime_checkable
class Session(Protocol):
    """One machine. Methods may be called by several threads at once.

    Every method but `close` and `capabilities` raises `SessionLost` where the machine is gone.

    Attributes:
        directory: the working directory: the image's, where it has one, else the same in every session of a plugin.
        home: HOME, the same in every session of a plugin.
    """

    directory: str
    home: str

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        directory: str = "",
    ) -> Exit:
        """Runs a command in the working directory and returns when it has ended; what it started may live on.

        Args:
            argv: the program and its arguments; no shell reads them.
            stdin: what it may read.
            env: variables beside those of the job.
            timeout: seconds until the command and its process group are killed.
            directory: another folder to run in.
        """

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, directory: str = "") -> Process:
        """Starts a command whose streams are pipes. Raises SessionError if it cannot be started."""

    def read(self, path: str) -> bytes:
        """Returns the content of a file; a relative path is below the working directory.

        Raises SessionError if it is no plain file, is larger than all files of the session may be, or cannot be read
        with the rights of the session's programs.
        """

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Writes a file, and the folders above it, with the rights of the session's programs. Raises SessionError."""

    def tar(self, path: str = "") -> BinaryIO:
        """Returns a file or folder ("": the working directory) as an open tar; follows no link. Raises SessionError."""

    def port(self, number: int) -> str:
        """Returns "127.0.0.1:PORT" of this machine, which reaches a port of the session's 127.0.0.1.

        Raises SessionError if this kind of session cannot.
        """

    def stop(self) -> None:
        """Kills every process; the files stay, and commands may be run again."""

    def snapshot(self) -> str:
        """Keeps the files as they are, until this session is closed, and returns an id. Processes are not kept.

        Raises SessionError if this kind of session cannot.
        """

    def fork(self, snapshot: str) -> Session:
        """Returns a new session of the same job that begins with the files of a snapshot. Raises SessionError."""

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what `SessionPool.capabilities` returns."""

    def close(self) -> None:
        """Kills every process and removes every file and mount; safe to call twice."""


@runtime_checkable
class SessionPool(Protocol):
    """What the factory of a `SessionSpec` returns: opens sessions, which know nothing of each other."""

    def open(self, job: SessionJob) -> Session:
        """Opens a session; several threads may do so at once.

        Raises SessionError if this kind of session cannot give what the job asks for, or its files cannot be written;
        SessionLost if the machine gave no session.
        """

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what its sessions can do, by the names in `CAPABILITIES`, and each protection that they offer."""

    def close(self) -> None:
        """Closes every session; safe to call twice."""

    @classmethod
    def reap(cls) -> int:
        """Removes what pools of crashed runs left behind, and returns how many things that were."""
