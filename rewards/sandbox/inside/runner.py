"""Turns a freshly forked child into one untrusted program.

Theory of operation: everything that needs a right comes first, each right is then given up for good, and the program is
looked at only when none is left. Order matters: descriptors, limits, user, capabilities, Landlock, seccomp, program;
the zygote has already ruled out new privileges. When any step fails the child ends before it has looked at the program.

A Python program runs in this interpreter, as `__main__` (`python_main`). Other languages replace the process. This
module runs inside the sandbox and imports the standard library only.
"""

from __future__ import annotations

import mmap
import os
import resource
import traceback
from typing import Any, NoReturn

from grpo.plugins import kernel
from grpo.rewards.sandbox.inside import wire
from grpo.rewards.sandbox.inside.python_main import prepare_main, run_python
from grpo.rewards.sandbox.inside.seccomp import Filters

_OPEN_FILES = 64
_COMPILER = 8  # processes that a compiler may use
_SETUP_FAILED = 111


class Runner:
    """How the programs of one zygote begin, with all that is the same for every program.

    Each object that a forked child touches is a page that the kernel copies: most of what a small program costs.
    """

    def __init__(self, plan: dict[str, Any], notes: mmap.mmap, begun: mmap.mmap) -> None:
        """Takes over the plan, and sets what the zygote itself can do with and programs inherit.

        `notes`: shared with the zygote and the program. `begun`: out of the program's reach: the first byte says that
        it began.
        """
        self._plan, self._notes, self._begun = plan, notes, begun
        self._calls = Filters(bool(plan["seccomp"]))
        self._beside: int = plan["processes_beside"]
        self._user: int = plan["program_user"] if plan["changes_user"] else -1
        self._memory = resource.RLIMIT_DATA if plan["maps_freely"] else resource.RLIMIT_AS
        for kind in (resource.RLIMIT_MSGQUEUE, resource.RLIMIT_MEMLOCK):
            resource.setrlimit(kind, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kinds = (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, self._memory)
        hard = {kind: resource.getrlimit(kind)[1] for kind in kinds}
        self._most = {kind: most for kind, most in hard.items() if most != resource.RLIM_INFINITY}
        if not plan["command"]:
            prepare_main(plan["file"], plan["own"], plan["known"])

    def become_program(self, request: wire.Request, files: list[int], rules: int) -> NoReturn:
        """Runs a program in a forked child and ends the process. `rules`: the Landlock rules, or -1.

        `files`: descriptors above 3: the program, stdin, stdout, stderr, and perhaps the channel.
        """
        code = _SETUP_FAILED
        try:
            program, others = wire.unpack_payload(self._give_up_rights(request, files, rules))
            if others:
                _write_files(others)
            code = self._run(program, request)
        except BaseException:
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        finally:
            os._exit(code)

    def _give_up_rights(self, request: wire.Request, files: list[int], rules: int) -> bytes:
        """Returns what the memory file of the program holds; keeps the right to system calls."""
        payload = os.pread(files[0], os.lseek(files[0], 0, os.SEEK_END), 0)
        number = -1
        for descriptor in files:
            if number >= 0:
                os.dup2(descriptor, number)
            number += 1
        processes = max(request.processes, _COMPILER if self._plan["compile"] else 1)
        self._limit(resource.RLIMIT_CPU, int(request.cpu) + 2)
        self._limit(resource.RLIMIT_FSIZE, max(request.disk, request.output) + 2**20)
        self._limit(resource.RLIMIT_NPROC, max(processes, request.threads) + self._beside)
        self._limit(self._memory, request.memory)
        if self._user >= 0:
            os.setresgid(self._user, self._user, self._user)
            os.setresuid(self._user, self._user, self._user)
        kernel.set_capabilities(0)
        os.chdir(self._plan["own"])
        if rules >= 0:
            kernel.landlock_restrict(rules)
        kernel.close_from(number)
        return payload

    def _limit(self, kind: int, most: int) -> None:
        """Sets a limit that the program cannot raise again; a lower one stays."""
        if kind in self._most:
            most = min(most, self._most[kind])
        resource.setrlimit(kind, (most, most))

    def _run(self, program: bytes, request: wire.Request) -> int:  # noqa: RET503 - execve does not return
        plan, notes, alone = self._plan, self._notes, request.processes == 1
        if not plan["command"]:
            calls = self._calls.threading if request.threads > 1 else self._calls.alone
            kernel.install(calls if alone else self._calls.starting(os.getpid()))
            self._begin()
            return run_python(program, plan["file"], notes)
        with open(plan["file"], "xb") as source:
            source.write(program)
        environment = dict(os.environ)
        if plan["compile"] and not self._compiled(plan["compile"], environment):
            notes[0] = wire.NOTED_COMPILE
            self._begin()
            return 1
        self._limit(resource.RLIMIT_NPROC, max(request.processes, request.threads) + self._beside)
        calls = self._calls.replaced if alone and request.threads == 1 else self._calls.starting(os.getpid())
        kernel.install(calls)
        self._begin()
        os.execve(plan["command"][0], plan["command"], environment)

    def _begin(self) -> None:
        """Notes that all is set up, where the program cannot take it back: its failures are then its own."""
        self._begun[0] = 1
        self._begun.close()

    def _compiled(self, command: list[str], environment: dict[str, str]) -> bool:
        """Runs the compiler, which may start processes, and says whether it succeeded."""
        calls = self._calls.starting(os.getpid())
        child = os.fork()
        if child == 0:
            try:
                os.dup2(2, 1)
                kernel.install(calls)
                os.execve(command[0], command, environment)
            finally:
                os._exit(_SETUP_FAILED)
        _, status = os.waitpid(child, 0)
        return status == 0


def _write_files(files: list[tuple[str, bytes]]) -> None:
    for name, content in files:
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, "xb") as file:
            file.write(content)
