"""Defines a sandbox's `Job` and `JobResult`; neither has a score.

Trouble of the sandbox is told apart from trouble of the program, because only the latter may be scored. A job may have
a peer, a second program in a sandbox of its own; they share only a stream socket, descriptor `CHANNEL`. A judge runs
its tests as the job and the untrusted program as the peer, which cannot reach the job's verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

JobOutcome = Literal[
    "exited",
    "compile_error",
    "signalled",
    "time_cpu",
    "time_wall",
    "memory",
    "output",
    "policy",
    "sandbox_error",
    "unavailable",
    "overloaded",
]

TROUBLE: frozenset[JobOutcome] = frozenset({"sandbox_error", "unavailable", "overloaded"})
"""The outcomes that say nothing about the program and must become a failure, never a score."""

CHANNEL = 3
"""The descriptor of the stream socket between a job and its peer, the same number in both."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    Attributes:
        cpu_seconds: processor time of the program and its children.
        wall_seconds: time on the clock, the backstop for programs that sleep. The time in which it was ready and others
            had the processor does not count, up to three times this; beyond that it is "overloaded".
        memory_bytes: memory of the program and its children.
        output_bytes: stdout and stderr, each.
        disk_bytes: what it may write in its own folder.
        processes: how many processes and threads may live at once; with 1, starting a process is refused.
        threads: how many threads a program of one process may have; with 1, starting one is refused.
    """

    cpu_seconds: float = 5.0
    wall_seconds: float = 11.0
    memory_bytes: int = 512 * 2**20
    output_bytes: int = 2**20
    disk_bytes: int = 64 * 2**20
    processes: int = 1
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """One program to run.

    Attributes:
        program: the source text.
        stdin: the bytes that it may read.
        files: relative path to content, laid beside the program.
        limits: what it may use.
        profile: the language and its set-up, by a name that the sandbox lists in its capabilities.
        peer: a program to run at the same time in a sandbox of its own, connected through `CHANNEL`; it has no peer
            itself. It is ended when the job ends; the job reads the end of the stream when the peer ends.
    """

    program: str
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    profile: str = "python"
    peer: Job | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """What happened to one job.

    Attributes:
        outcome: how it ended. "exited" (by itself, with any status), "signalled", "time_cpu", "time_wall", "memory",
            "output" (over a limit), "policy" (killed for a forbidden system call), "compile_error" (the program never
            started). The outcomes in `TROUBLE` are the sandbox's and must become a failure, never a score.
        stdout: the bytes that the program wrote, up to the limit.
        stderr: likewise.
        exit_code: the exit status, or None when it did not exit by itself.
        signal: the signal that ended it, or None.
        cpu_seconds: processor time used.
        wall_seconds: time on the clock.
        peak_bytes: the greatest memory use, or None when it was not measured.
        degraded: the protections that were missing while it ran.
        reason: for people, one line on a cause that the outcome leaves open, or "".
        peer: what happened to the job's peer, or None without one. A peer that was still running when the job ended
            has the outcome "exited" and no exit code.
        waited_seconds: how long it was ready to compute while others had the processor. Looked at when a program
            is late or told to end; None when it was not, or the kernel does not say.
    """

    outcome: JobOutcome
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    signal: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_bytes: int | None = None
    degraded: tuple[str, ...] = ()
    reason: str = ""
    peer: JobResult | None = None
    waited_seconds: float | None = None

    @property
    def trouble(self) -> bool:
        """True when the sandbox, for the job or its peer, failed: nothing is then known about the program."""
        return self.outcome in TROUBLE or (self.peer is not None and self.peer.outcome in TROUBLE)


@runtime_checkable
class SandboxPool(Protocol):
    """Returned by the factory of a `SandboxSpec`: runs jobs side by side, as many at once as it has room for.

    `run` may be called by several tasks, threads and event loops at once; they share the room.
    """

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Runs jobs and returns one result for each, in their order; it raises for no program."""

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what it can do, by name: "profile:python", "peer", and each protection that it offers."""

    def close(self) -> None:
        """Ends everything that the pool started; safe to call twice."""

    @classmethod
    def reap(cls) -> int:
        """Removes what pools of crashed runs left behind, and returns how many things that were."""
