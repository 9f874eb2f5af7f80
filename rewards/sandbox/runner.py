"""Turns a freshly forked child into one untrusted program: a request and descriptors in, an exit status out.

Theory of operation: everything that needs a right comes first, each right is then given up for good, and the program
is read only when none is left. Order matters: descriptors, limits, user, capabilities, no-new-privileges, Landlock,
seccomp, program. When any of it fails the child ends before it has read the program.

A Python program runs in this interpreter, as `__main__`, with the ends that a program of its own would have: exit
codes, uncaught exceptions on stderr, threads waited for, `atexit` called. Other languages replace the process.

This module runs inside the sandbox and imports the standard library only.
"""

from __future__ import annotations

import mmap
import os
import resource
import traceback
from typing import Any, NoReturn

from grpo.rewards.sandbox import kernel, wire
from grpo.rewards.sandbox.python_main import run_python
from grpo.rewards.sandbox.seccomp import Filters

_OPEN_FILES = 64
_COMPILER = 8  # processes that a compiler may use
_SETUP_FAILED = 111


class Runner:
    """One program about to run."""

    def __init__(
        self,
        plan: dict[str, Any],
        request: wire.Request,
        files: list[int],
        notes: mmap.mmap,
        rules: int,
        calls: Filters,
    ) -> None:
        self._plan, self._request, self._files = plan, request, files
        self._notes, self._rules, self._calls = notes, rules, calls

    def become_program(self) -> NoReturn:
        """Runs the program and ends the process."""
        code = _SETUP_FAILED
        try:
            self._notes[:1] = bytes([wire.NOTED_SETUP])
            program, files = wire.unpack_payload(self._give_up_rights())
            _write_files(files)
            code = self._run(program)
        except BaseException:
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        finally:
            os._exit(code)

    def _give_up_rights(self) -> bytes:
        """Gives up every right but system calls, and returns what the memory file of the program holds."""
        plan, request = self._plan, self._request
        # Copied first: the numbers that came may be the very ones to fill. Copies are not inheritable.
        copies = [os.dup(descriptor) for descriptor in self._files]
        for number, descriptor in enumerate(copies[1:]):
            os.dup2(descriptor, number)
        payload = os.pread(copies[0], os.fstat(copies[0]).st_size, 0)
        beside = plan["processes_beside"]
        for kind, most in (
            (resource.RLIMIT_CPU, int(request.cpu) + 2),
            (resource.RLIMIT_FSIZE, max(request.disk, request.output) + 2**20),
            (resource.RLIMIT_NPROC, beside + (_COMPILER if plan["compile"] else request.processes)),
            (resource.RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
            (resource.RLIMIT_DATA if plan["maps_freely"] else resource.RLIMIT_AS, request.memory),
        ):
            _limit(kind, most)
        if plan["changes_user"]:
            user = plan["program_user"]
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        kernel.set_capabilities(0)
        os.chdir(plan["own"])
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if self._rules >= 0:
            kernel.landlock_restrict(self._rules)
        kernel.close_from(len(self._files) - 1)
        _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
        return payload

    def _run(self, program: bytes) -> int:  # noqa: RET503 - execve does not return
        """Runs the program; returns its exit code when it ran in this process."""
        if not self._plan["command"]:
            kernel.install(self._calls.alone if self._request.processes == 1 else self._calls.starting)
            self._notes[:1] = bytes([wire.NOTED_NOTHING])
            return run_python(program, self._plan["file"], self._notes)
        with open(self._plan["file"], "xb") as source:
            source.write(program)
        environment = dict(os.environ)
        if self._plan["compile"] and not self._compiled(self._plan["compile"], environment):
            self._notes[:1] = bytes([wire.NOTED_COMPILE])
            return 1
        _limit(resource.RLIMIT_NPROC, self._request.processes + self._plan["processes_beside"])
        kernel.install(self._calls.replaced if self._request.processes == 1 else self._calls.starting)
        self._notes[:1] = bytes([wire.NOTED_NOTHING])
        os.execve(self._plan["command"][0], self._plan["command"], environment)

    def _compiled(self, command: list[str], environment: dict[str, str]) -> bool:
        """Runs the compiler, which may start processes, and says whether it was content."""
        child = os.fork()
        if child == 0:
            try:
                os.dup2(2, 1)
                kernel.install(self._calls.starting)
                os.execve(command[0], command, environment)
            finally:
                os._exit(_SETUP_FAILED)
        _, status = os.waitpid(child, 0)
        return status == 0


def _limit(kind: int, most: int) -> None:
    """Sets a limit that the program cannot raise again; a lower one that is there stays."""
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def _write_files(files: list[tuple[str, bytes]]) -> None:
    for name, content in files:
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, "xb") as file:
            file.write(content)
