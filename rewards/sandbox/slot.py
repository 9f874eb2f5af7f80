"""Starts one sandbox and runs one job in it at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import weakref

from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.sandbox_job import Job, JobOutcome, JobResult, Limits
from grpo.rewards.sandbox.bundle import LAUNCH, memory_file, output_file, packed
from grpo.rewards.sandbox.inside import wire
from grpo.rewards.sandbox.plan import Planned

START_SECONDS = 30.0
# Programs after which a zygote is replaced: a bound on what could pile up in a long-lived process.
MOST_JOBS = 5000
_ENDING = 0.5  # seconds
_OWN_MEMORY = 64 * 2**20  # of the launcher and the zygote
_MOST_THREADS = 1024

_alive: weakref.WeakSet[Slot] = weakref.WeakSet()


class ProtectionMissing(Exception):
    """The machine does not give some protections; the one argument is the list of their names."""


class SlotLost(Exception):
    """The sandbox ended or answered nonsense; nothing is known about the program."""


class Slot:
    """One running sandbox."""

    def __init__(self, planned: Planned) -> None:
        """Starts it. Raises ProtectionMissing, SandboxUnavailable."""
        self._degraded, self._group = planned.degraded, planned.group
        self.profile, self._least_processes = planned.name, planned.profile.least_processes
        self.jobs = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        bundle, log = memory_file("grpo-bundle", packed(planned.plan)), os.memfd_create("grpo-log")
        descriptors = [inner.fileno(), bundle]
        try:
            self._process = subprocess.Popen(
                [planned.python, "-I", "-S", "-c", LAUNCH, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=descriptors,
                env={},
                cwd="/",
                start_new_session=True,
            )
            inner.close()
            self._control.settimeout(START_SECONDS)
            _alive.add(self)
            self._expect_ready(log)
        except BaseException:
            inner.close()
            self.close()
            raise
        finally:
            os.close(bundle)
            os.close(log)
        self._control.setblocking(False)

    def _expect_ready(self, log: int) -> None:
        try:
            packet = self._control.recv(wire.PACKET)
        except TimeoutError:
            packet = b""
        reply = json.loads(packet) if packet else {}
        if reply.get("missing"):
            raise ProtectionMissing(reply["missing"])
        if "ready" not in reply:
            error = reply.get("error") or os.pread(log, 4000, 0).decode("utf-8", "replace").strip() or "no answer"
            raise SandboxUnavailable(f"the sandbox does not start: {error}")

    async def run(self, job: Job, channel: socket.socket | None) -> JobResult:
        """Runs one job; SlotLost where the sandbox or something outside ended the program: the slot must be closed."""
        self.jobs += 1
        limits = job.limits
        processes = max(limits.processes, self._least_processes)
        self._limit_group(limits)
        sizes = limits.memory_bytes, limits.output_bytes, limits.disk_bytes
        threads = min(limits.threads, _MOST_THREADS)
        request = wire.Request(limits.cpu_seconds, limits.wall_seconds, *sizes, processes, threads)
        program = job.program.encode("utf-8", "surrogatepass")
        sent: list[int] = []
        try:
            sent.append(memory_file("grpo-program", wire.pack_payload(program, sorted(job.files.items()))))
            sent.append(memory_file("grpo-stdin", job.stdin))
            sent += [output_file("grpo-stdout", limits.output_bytes), output_file("grpo-stderr", limits.output_bytes)]
            extra = [channel.fileno()] if channel else []
            try:
                socket.send_fds(self._control, [request.packed()], [*sent, *extra])
                if channel:
                    channel.close()
                packet = await self._answer(wire.PATIENCE * limits.wall_seconds + START_SECONDS)
            except OSError as error:
                raise SlotLost(str(error)) from error
            if not packet:
                raise SlotLost("the sandbox ended, or was silent for too long, while it ran the program")
            written = [os.lseek(output, 0, os.SEEK_CUR) for output in sent[2:]]
            texts = []
            for output, size in zip(sent[2:], written, strict=True):
                texts.append(os.pread(output, min(size, limits.output_bytes), 0))
            answer = self._ask_for_kills(wire.Answer.unpacked(packet), limits, processes)
            return self._result(answer, job, max(written) > limits.output_bytes, texts)
        finally:
            for descriptor in sent:
                os.close(descriptor)

    def _ask_for_kills(self, answer: wire.Answer, limits: Limits, processes: int) -> wire.Answer:
        """Notes when the program was ended at its limit of memory; SlotLost where the machine or a user ended it."""
        killed = os.WIFSIGNALED(answer.status)
        why = self._group.why_ended() if self._group and (killed or processes > 1) else ""
        if why == "limit":
            return answer._replace(ended=wire.OVER_MEMORY)
        if why == "machine":
            raise SlotLost("the machine had no memory left, and the kernel ended the program")
        # By itself a program is ended so only at its limit of processor time; see `inside.seccomp`.
        outside = killed and os.WTERMSIG(answer.status) == signal.SIGKILL and answer.ended == wire.ENDED_ITSELF
        if outside and not why and answer.cpu <= limits.cpu_seconds and "seccomp" not in self._degraded:
            raise SlotLost("something outside the sandbox ended the program: did the machine run out of memory?")
        return answer

    async def _answer(self, seconds: float) -> bytes:
        """The zygote's packet; nothing when it ended or was silent for so long."""
        loop = asyncio.get_running_loop()
        watchdog = loop.call_later(seconds, self._control.shutdown, socket.SHUT_RDWR)
        try:
            return await loop.sock_recv(self._control, wire.MESSAGE)
        finally:
            watchdog.cancel()

    def _limit_group(self, limits: Limits) -> None:
        if not self._group:
            return
        try:
            self._group.limit(limits.memory_bytes + limits.disk_bytes + _OWN_MEMORY)
        except OSError as error:  # the last program's memory is still in use
            raise SlotLost(str(error)) from error

    def stop(self) -> None:
        """Ends the program that runs; its answer comes as for any other."""
        with contextlib.suppress(OSError):
            self._control.send(wire.STOP)

    @property
    def worn(self) -> bool:
        """True when the slot should be replaced before its next job."""
        return self.jobs >= MOST_JOBS or self._process is None or self._process.poll() is not None

    def close(self) -> None:
        """Ends the sandbox and everything in it; safe to call twice."""
        self._control.close()
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.wait(_ENDING)  # its connection is closed, so that it ends by itself
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
        if self._group:
            self._group.remove()

    def _result(self, answer: wire.Answer, job: Job, flooded: bool, texts: list[bytes]) -> JobResult:
        signalled, code = os.WIFSIGNALED(answer.status), None
        number = os.WTERMSIG(answer.status) if signalled else None
        if not signalled:
            code = os.WEXITSTATUS(answer.status)
        outcome = _outcome(answer, job, flooded, number, code)
        reason = ""
        if outcome == "sandbox_error":
            reason = texts[1].decode("utf-8", "replace").strip()[-400:]
        elif outcome == "overloaded":
            reason = f"others had the processor for {answer.waited:.1f} of the {answer.wall:.1f} s that it was given"
        ended_by_us = answer.ended != wire.ENDED_ITSELF
        return JobResult(
            outcome,
            stdout=texts[0],
            stderr=texts[1],
            exit_code=None if ended_by_us else code,
            signal=None if answer.ended == wire.STOPPED else number,
            cpu_seconds=round(answer.cpu, 6),
            wall_seconds=round(answer.wall, 6),
            peak_bytes=answer.peak,
            degraded=self._degraded,
            reason=reason,
            waited_seconds=None if answer.waited < 0 else round(answer.waited, 6),
        )


def _outcome(answer: wire.Answer, job: Job, flooded: bool, number: int | None, code: int | None) -> JobOutcome:
    if answer.noted == wire.NOTED_SETUP:
        return "sandbox_error"
    if flooded or answer.ended == wire.OVER_OUTPUT:
        return "output"
    if answer.ended == wire.OVER_CPU or answer.cpu > job.limits.cpu_seconds or number == signal.SIGXCPU:
        return "time_cpu"
    if answer.ended == wire.OVER_WALL:
        return "overloaded" if answer.waited > (wire.PATIENCE - 1) * job.limits.wall_seconds else "time_wall"
    if answer.ended == wire.STOPPED:
        return "exited"
    if answer.ended == wire.OVER_MEMORY or (answer.noted == wire.NOTED_MEMORY and code != 0):
        return "memory"
    if number is not None:
        return "policy" if number == signal.SIGSYS else "signalled"
    if answer.noted == wire.NOTED_COMPILE and code != 0:
        return "compile_error"
    return "exited"


def _forget_after_fork() -> None:
    """Closes a forked child's copies of the connections: a sandbox ends when the last one is closed."""
    for slot in list(_alive):
        slot._control.close()


os.register_at_fork(after_in_child=_forget_after_fork)
