"""Forks every program of a slot, and answers each request with how its program ended.

Theory of operation: process 1 of its pid namespace, alone in its mount, network and IPC namespaces. For each request it
forks; the child (`runner`) gives up every right and only then reads the program from its memory file. The zygote waits
on a descriptor of the child and of the pool, ends the child at a limit or when the pool goes away, ends whatever the
child left behind (`kill(-1)` from process 1 reaches every process of the namespace), and reports. It reads nothing that
a program wrote.

A late program's limit is extended, within bounds, by the time in which it was ready and others had the processor
(`waiting`), but not for what its own threads and children had.

Between two programs the folder of the last one is replaced by a fresh tmpfs, unless it was left exactly as mounted. The
zygote ends itself when anything is not as it should be; the pool then starts another. This module runs inside the
sandbox and imports the standard library only.
"""

from __future__ import annotations

import _socket  # without what `socket` adds, which every program would be forked with
import atexit
import gc
import importlib
import json
import mmap
import os
import random
import select
import signal
import sys
import time
from typing import Any

from grpo.plugins import kernel
from grpo.rewards.sandbox.inside import landlock, waiting, wire
from grpo.rewards.sandbox.inside.runner import Runner

# What programs for tests import most: an import then costs a look-up. Each module more makes every fork dearer.
_PRELOADED = (
    "bisect collections contextlib copy datetime functools heapq itertools json math operator random re string struct "
    "time typing"
)
_ROOM = _socket.CMSG_SPACE(wire.FILES_SENT * 4)  # descriptors are four bytes each
_INODES = 1024
_ENDING = 0.05  # seconds for a program that is told to end and is about to end by itself
_LOOK = 0.2  # seconds between looks at the size of the output
_EXTRA_DISK = 4096
_BLANK = bytes(mmap.PAGESIZE)
_CLOCK = 5  # the descriptor of the control group's clock
_MOVED = 0.01  # of the time limit: what moves it by less than this changes nothing any more


class Zygote:
    def __init__(self, control: _socket.socket, plan: dict[str, Any]) -> None:
        self._control = control
        self._plan = plan
        self._own: str = plan["own"]
        self._notes = mmap.mmap(-1, mmap.PAGESIZE)
        self._disk = -1
        self._fresh: tuple[int, ...] = ()
        self._rules = -1
        self._begun = mmap.mmap(-1, mmap.PAGESIZE)
        self._waited = -1.0
        self._runner = Runner(plan, self._notes, self._begun)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN | select.POLLHUP)

    def serve(self) -> None:
        """Answers requests until the pool closes its end."""
        while True:
            packet, ancillary, _, _ = self._control.recvmsg(wire.MESSAGE, _ROOM)
            if not packet:
                return
            files = [number for _, _, data in ancillary for number in memoryview(data).cast("i")]
            if packet == wire.STOP:
                continue  # the program ended before the pool's word came
            request = wire.Request.unpacked(packet)
            self._clean_up(request.disk)
            answer = self._run(request, files)
            self._control.send(answer.packed())
            self._notes[:] = _BLANK  # the program may have left something for the next one in it
            self._begun[0] = 0

    def prepare(self) -> None:
        """Does everything that can be done before the first program."""
        kernel.drop_bounding_set()
        self._clean_up(self._plan["disk"])

    def _clean_up(self, disk: int) -> None:
        """Gives the next program a folder in which nothing is, and nothing has ever been."""
        if disk == self._disk and self._state() == self._fresh:
            return
        if self._disk >= 0:
            kernel.unmount(self._own)
        user = self._plan["program_user"]
        size = (disk + _EXTRA_DISK - 1) // 4096 * 4096
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOATIME
        flags |= 0 if self._plan["own_executable"] else kernel.MS_NOEXEC
        options = f"size={size},nr_inodes={_INODES},mode=0700,uid={user},gid={user}"
        kernel.mount("tmpfs", self._own, "tmpfs", flags, options)
        self._disk = disk
        self._fresh = self._state()
        if self._plan["landlock"]:
            if self._rules >= 0:
                os.close(self._rules)
            self._rules = landlock.ruleset(self._own)

    def _state(self) -> tuple[int, ...]:
        """What any change of the folder changes: free space and inodes, and the time of its last change."""
        if self._disk < 0:
            return ()
        room, folder = os.statvfs(self._own), os.stat(self._own)
        times = folder.st_atime_ns, folder.st_mtime_ns, folder.st_ctime_ns
        return room.f_bfree, room.f_ffree, *times, folder.st_mode, folder.st_dev

    def _run(self, request: wire.Request, files: list[int]) -> wire.Answer:
        began, self._waited = time.monotonic(), -1.0
        child = kernel.fork()
        if child == 0:
            self._runner.become_program(request, files, self._rules)
        watched = os.pidfd_open(child)
        for descriptor in (*files[:2], *files[4:]):
            os.close(descriptor)
        ended = self._watch(child, watched, request, files[2:4], began)
        self._poll.unregister(watched)
        if ended != wire.ENDED_ITSELF:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        more_cpu, more_peak = self._end_the_rest()
        for descriptor in (watched, *files[2:4]):
            os.close(descriptor)
        noted = min(self._notes[0], wire.NOTED_COMPILE) if self._begun[0] else wire.NOTED_SETUP
        wall = time.monotonic() - began
        return wire.Answer(status, ended, noted, cpu + more_cpu, wall, self._waited, max(peak, more_peak) * 1024)

    def _watch(self, child: int, watched: int, request: wire.Request, outputs: list[int], began: float) -> int:
        poll = self._poll
        poll.register(watched, select.POLLIN)
        before = self._spent_by_all() if request.processes > 1 else 0.0
        late = began + request.wall
        while True:
            left = late - time.monotonic()
            used = self._used(child, request, before)
            pause = min(left, max((request.cpu - used) / request.processes, 0.002), _LOOK)
            if used >= request.cpu:
                return wire.OVER_CPU
            if left <= 0:
                self._look_for_waiting(watched, request, self._used(child, request, before))
                moved = began + min(request.wall + self._waited, request.wall * wire.PATIENCE)
                if moved - late < _MOVED * request.wall:
                    return wire.OVER_WALL
                late = moved
                continue
            if any(os.lseek(output, 0, os.SEEK_CUR) > request.output for output in outputs):
                return wire.OVER_OUTPUT
            events = dict(poll.poll(pause * 1000))
            if watched in events:
                return wire.ENDED_ITSELF
            if events:
                self._control.recv(wire.MESSAGE)  # "stop", or nothing: the pool is gone, which `serve` sees again
                self._look_for_waiting(watched, request, self._used(child, request, before))
                return wire.ENDED_ITSELF if select.select([watched], [], [], _ENDING)[0] else wire.STOPPED

    def _used(self, child: int, request: wire.Request, before: float) -> float:
        """Processor time in seconds, of all processes of the program where that can be known."""
        clock = (~child << 3) | 2  # the processor time of another process; clock_getcpuclockid of the C library
        try:
            used = time.clock_gettime(clock)
        except OSError:
            used = 0.0  # it has just ended
        return max(used, self._spent_by_all() - before) if request.processes > 1 else used

    def _look_for_waiting(self, watched: int, request: wire.Request, used: float) -> None:
        if request.processes == 1 or self._plan["clock"]:  # else nobody knows what its children use
            self._waited = waiting.seconds(watched, used)

    def _spent_by_all(self) -> float:
        """Processor time of the control group in seconds, or 0.0 without one."""
        if not self._plan["clock"]:
            return 0.0
        words = os.pread(_CLOCK, 200, 0).split()
        # Version 1: nanoseconds. Version 2: lines, of which the first is "usage_usec N".
        return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6

    @staticmethod
    def _end_the_rest() -> tuple[float, int]:
        """Ends what the child left behind; returns its processor time and peak memory."""
        cpu, peak = 0.0, 0
        while True:
            try:
                process, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return cpu, peak
            if process == 0:
                os.kill(-1, signal.SIGKILL)
                process, _, usage = os.wait4(-1, 0)
            cpu += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss)


def _import_packages(plan: dict[str, Any]) -> None:
    """Imports packages, with a folder that they may write to and no program sees."""
    if not plan["packages"]:
        return
    sys.path += plan["folders"]
    kernel.mount("tmpfs", plan["own"], "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "size=64m")
    for name in plan["packages"]:
        importlib.import_module(name)
    atexit._clear()  # programs would run it at their own end
    kernel.unmount(plan["own"])


def main(plan: dict[str, Any]) -> None:
    """Serves the pool on descriptor 3 until it goes away; called by the first program inside the sandbox."""
    control = _socket.socket(fileno=3)
    os.set_inheritable(3, False)
    for descriptor in (_CLOCK, waiting.PROCESSES):
        os.set_inheritable(descriptor, False)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(plan["program_environment"])
    os.umask(0o022)
    sys.path = [folder for folder in sys.path if folder]
    for name in _PRELOADED.split() if not plan["command"] else ():
        importlib.import_module(name)
    random.seed(0)
    zygote = Zygote(control, plan)
    try:
        _import_packages(plan)
        zygote.prepare()
    except (OSError, ImportError) as error:
        control.send(json.dumps({"error": str(error)}).encode())
        return
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"ready": sys.version.split()[0]}).encode())
    zygote.serve()
