"""Runs jobs in a pool of sandboxes on this machine, in order; jobs of a lost sandbox are retried once."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import PurePosixPath

from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.sandbox_job import Job, JobResult, Limits
from grpo.rewards.sandbox import cgroup
from grpo.rewards.sandbox.capacity import Room
from grpo.rewards.sandbox.plan import Plans
from grpo.rewards.sandbox.profiles import NAMES
from grpo.rewards.sandbox.slot import ProtectionMissing, Slot, SlotLost

_TRIES = 2
_MOST = 2**48
_ENDING = 0.02  # seconds for a peer that reads the end of the stream and ends by itself
_LIMITS = tuple(field.name for field in fields(Limits))
# Of the time on the clock: where the kernel does not say who waited, a program that computed this much was starved.
_BUSY = 0.2


class LocalPool:
    """Sandboxes of this machine, each for one program at a time."""

    def __init__(self, plans: Plans, slots: int) -> None:
        """Starts the first sandbox, so that what is missing shows at once. Raises SandboxUnavailable."""
        self._plans = plans
        self._room = Room(max(2, slots))
        self._idle: list[Slot] = []
        self._lock = threading.Lock()
        self._closed = False
        self.reap()
        self._give_slot(self._start("python"))

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        return await self._room.run(jobs, self._run_one)

    def capabilities(self) -> Mapping[str, bool]:
        """Returns the profiles and protections, and whether this machine gives them."""
        return {**self._plans.capabilities(), "peer": True, "judge": True}

    def close(self) -> None:
        """Ends every sandbox that is not at work, and each other one when its job ends."""
        self._closed = True
        with self._lock:
            slots, self._idle = self._idle, []
        for slot in slots:
            slot.close()

    @classmethod
    def reap(cls) -> int:
        """Removes what crashed runs left: nothing but control groups can be left, for a sandbox ends with its pool."""
        return cgroup.reap()

    async def _run_one(self, job: Job) -> JobResult:
        fault = self._fault_of(job) or (self._fault_of(job.peer, "peer") if job.peer else "")
        if fault:
            return JobResult("sandbox_error", reason=fault)
        places = 2 if job.peer else 1
        result = await self._with_places(job, places)
        starved = result.outcome == "time_wall" and result.cpu_seconds > _BUSY * result.wall_seconds
        starved = starved and job.limits.processes == 1 and result.waited_seconds is None
        return await self._with_places(job, self._room.size) if starved and self._room.size > places else result

    async def _with_places(self, job: Job, places: int) -> JobResult:
        await self._room.take(places)
        try:
            for attempt in range(_TRIES):
                try:
                    if job.peer:
                        return await self._run_pair(job, job.peer)
                    return await self._on_slot(await self._take_slot(job.profile), job, None)
                except SlotLost as error:
                    if attempt == _TRIES - 1:
                        return JobResult("sandbox_error", reason=str(error))
                except SandboxUnavailable as error:
                    return JobResult("unavailable", reason=str(error))
                except OSError as error:  # no descriptor, no memory, no process left on this machine
                    return JobResult("overloaded", reason=str(error))
            raise AssertionError("unreachable")
        finally:
            self._room.give(places)

    async def _run_pair(self, job: Job, peer: Job) -> JobResult:
        first = await self._take_slot(job.profile)
        try:
            second = await self._take_slot(peer.profile)
        except BaseException:
            self._give_slot(first)
            raise
        ends = socket.socketpair()
        beside = asyncio.ensure_future(self._on_slot(second, peer, ends[1]))
        try:
            result = await self._on_slot(first, job, ends[0])
        except BaseException:
            second.stop()
            await asyncio.gather(beside, return_exceptions=True)
            raise

        def stop() -> None:
            if not beside.done():  # else the sandbox may be at work for somebody else
                second.stop()

        stopping = asyncio.get_running_loop().call_later(_ENDING, stop)
        try:
            return replace(result, peer=await beside)
        finally:
            stopping.cancel()

    async def _on_slot(self, slot: Slot, job: Job, channel: socket.socket | None) -> JobResult:
        """Runs a job and gives the slot back, or ends it when it was lost or the caller is gone."""
        try:
            result = await slot.run(job, channel)
        except BaseException:
            slot.close()
            raise
        finally:
            if channel:
                channel.close()
        self._give_slot(slot)
        return result

    async def _take_slot(self, profile: str) -> Slot:
        """An idle sandbox for a profile, or a new one. Raises SandboxUnavailable, OSError."""
        with self._lock:
            for number, slot in enumerate(self._idle):
                if slot.profile == profile:
                    return self._idle.pop(number)
        return await asyncio.to_thread(self._start, profile)

    def _start(self, profile: str) -> Slot:
        planned = self._plans.make(profile)
        if planned is None:
            raise SandboxUnavailable(f"this machine has no profile '{profile}': what it needs is not installed.")
        try:
            return Slot(planned)
        except ProtectionMissing as missing:
            self._plans.give_up(missing.args[0])
            return self._start(profile)

    def _give_slot(self, slot: Slot) -> None:
        """Keeps a sandbox for the next job; worn ones, and the longest idle of too many, are ended."""
        ended = []
        with self._lock:
            if self._closed or slot.worn:
                ended.append(slot)
            else:
                self._idle.append(slot)
                if len(self._idle) > self._room.size:
                    ended.append(self._idle.pop(0))
        for old in ended:
            old.close()

    def _fault_of(self, job: Job, which: str = "job") -> str:
        if job.profile not in NAMES:
            return f"the {which} has the unknown profile '{job.profile}'"
        wrong = [name for name in _LIMITS if not 0 < getattr(job.limits, name) < _MOST]
        if wrong:
            return f"the {which} has the limit {wrong[0]} = {getattr(job.limits, wrong[0])}; limits are positive"
        if job.peer and which == "peer":
            return "a peer has no peer of its own"
        for name in job.files:
            path = PurePosixPath(name)
            if not name or path.is_absolute() or ".." in path.parts or "\0" in name or not name.isprintable():
                return f"the {which} has a file named {name!r}; file names are relative, printable and without '..'"
        return ""
