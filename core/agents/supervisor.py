"""Runs one agent in a process of its own and ends every process that the agent started.

Theory of operation. Where the machine allows it, the supervisor makes namespaces whose process 1 starts the agent: when
process 1 ends, the kernel has killed all others. Elsewhere the supervisor adopts orphans and kills its children until
there are none.

It reads a plan from its socket and writes one result when everything is dead. It ends the agent when its time is up or
when the other end of the socket is shut; then it removes the episode's folder itself. It keeps the last bytes of the
agent's output and always reads on, so that no agent waits or fills memory. If the supervisor itself is killed, the
kernel kills process 1, and with it the rest.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from grpo.core.agents.kernel import arrange_mounts, drop_capabilities, enter_namespaces
from grpo.plugins import kernel
from grpo.plugins.child_process import receive_message, send_message

KEPT = 65536  # bytes of stdout and of stderr that are kept: the last ones
_LONGEST_WORD = 1 << 20
_READ = 65536
_GIVE_UP = 10.0  # seconds for children that outrun being killed

Plan = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Word:
    """What the agent's process reports; a program that it started may have written it, too."""

    answer: str | None = None
    problem: str = ""
    unstarted: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.answer, str | None) or not isinstance(self.problem, str):
            raise TypeError


def supervise(control: socket.socket, run: Callable[[Plan], dict[str, object]] | None) -> NoReturn:
    """Runs the agent of the plan that comes over a socket, sends the result and ends this process."""
    code = 1
    try:
        kernel.die_with_parent()
        plan: Plan = json.loads(receive_message(control))
        result = _Supervision(control, plan, run).result()
        try:
            send_message(control, json.dumps(result).encode())
        except OSError:  # the runner is gone
            shutil.rmtree(plan["folder"], ignore_errors=True)
        code = 0
    except ConnectionError:
        pass  # the runner ended before it had sent a plan
    finally:
        os._exit(code)


class _Supervision:
    def __init__(self, control: socket.socket, plan: Plan, run: Callable[[Plan], dict[str, object]] | None) -> None:
        self._control, self._plan, self._run = control, plan, run
        self._selector = selectors.DefaultSelector()
        self._texts = {"stdout": bytearray(), "stderr": bytearray(), "word": bytearray(), "status": bytearray()}
        self._reads: dict[str, int] = {}
        self._writes: dict[str, int] = {}
        self._child = 0
        self._ended = False
        self._status: int | None = None

    def result(self) -> dict[str, Any]:
        for name in self._texts:
            self._reads[name], self._writes[name] = os.pipe()
            os.set_blocking(self._reads[name], False)
            self._selector.register(self._reads[name], selectors.EVENT_READ, name)
        self._selector.register(self._control, selectors.EVENT_READ, "control")
        wake, waker = os.pipe()
        for descriptor in (wake, waker):
            os.set_blocking(descriptor, False)
        self._selector.register(wake, selectors.EVENT_READ, "wake")
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        kernel.adopt_orphans()
        self._stdin = os.open(self._plan["stdin"] or os.devnull, os.O_RDONLY)
        began = time.monotonic()
        if self._plan["namespaces"]:
            enter_namespaces()
            kernel.die_with_parent()  # new credentials may have undone it
        self._child = os.fork()
        if self._child == 0:
            signal.set_wakeup_fd(-1)
            self._first_process()
        for descriptor in self._writes.values():
            os.close(descriptor)
        timed_out = self._watch(began + self._plan["seconds"])
        left = self._end_all()
        seconds = time.monotonic() - began
        for name in self._texts:
            self._read(name)
        return self._exit_message(timed_out, seconds, left)

    def _watch(self, deadline: float) -> bool:
        """Reads the agent's output until it has ended or is to be ended; returns whether its time was up."""
        while not self._ended:
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            for key, _ in self._selector.select(left):
                if key.data == "control":
                    return False  # shut: the agent is to be ended
                if key.data == "wake":
                    with contextlib.suppress(BlockingIOError):
                        os.read(key.fd, 512)
                    self._reap()
                elif not self._read(key.data, once=True):
                    self._selector.unregister(key.fd)
        return False

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._child:
                    self._ended, self._status = True, ended[1]

    def _end_all(self) -> bool:
        deadline = time.monotonic() + _GIVE_UP
        while True:
            try:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    if self._plan["namespaces"]:
                        os.kill(self._child, signal.SIGKILL)
                    elif kernel.LINUX:
                        _kill_children()
                    else:
                        os.killpg(self._child, signal.SIGKILL)
                pid, status = os.waitpid(-1, 0 if self._plan["namespaces"] else os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == self._child:
                self._status = status
            elif not pid:
                if time.monotonic() > deadline:
                    return True
                time.sleep(0.002)

    def _read(self, name: str, once: bool = False) -> bool:
        """Reads what a pipe has, all of it or one piece; returns whether more may come."""
        text, most = self._texts[name], _LONGEST_WORD if name == "word" else KEPT
        while True:
            try:
                piece = os.read(self._reads[name], _READ)
            except BlockingIOError:
                return True
            if not piece:
                return False
            if name == "word":
                text += piece[: most - len(text)]  # a message: its beginning
            else:
                text += piece
                del text[:-most]
            if once:
                return True

    def _exit_message(self, timed_out: bool, seconds: float, left: bool) -> dict[str, Any]:
        status = self._status
        if self._plan["namespaces"]:
            status = int(self._texts["status"]) if self._texts["status"].strip().isdigit() else None
        code = None if status is None else os.waitstatus_to_exitcode(status)
        word = _Word()
        problem = ""
        if self._texts["word"]:
            try:
                word = _Word(**json.loads(self._texts["word"]))
            except (ValueError, TypeError, RecursionError):
                long = len(self._texts["word"]) >= _LONGEST_WORD
                problem = f"its answer has more than {_LONGEST_WORD} bytes" if long else "its answer cannot be read"
        if word.unstarted:
            code = None
        elif code is None and self._ended:
            problem = "its first process was killed from outside"
        elif code is None:
            code = -signal.SIGKILL  # as it was ended here
        if left:
            problem = "processes that it started could not be ended"
        streams = {name: base64.b64encode(self._texts[name]).decode("ascii") for name in ("stdout", "stderr")}
        return {
            "code": code,
            "timed_out": timed_out,
            "seconds": seconds,
            "answer": word.answer,
            "problem": word.problem or problem,
            **streams,
        }

    def _first_process(self) -> NoReturn:
        """Starts the agent; this is process 1 of the namespaces, or the agent itself."""
        try:
            kernel.die_with_parent()
            os.setsid()
            self._control.close()
            for descriptor in self._reads.values():
                os.close(descriptor)
            if self._plan["namespaces"]:
                arrange_mounts(self._plan["places"], self._plan["kept"])
                agent = os.fork()
                if agent:
                    self._await(agent)
                kernel.die_with_parent()
                os.setsid()
                drop_capabilities()
            self._become_agent()
        except BaseException as error:
            self._send(unstarted=True, problem=f"it cannot be started: {error}")
        finally:
            os._exit(127)

    def _await(self, agent: int) -> NoReturn:
        for name in ("stdout", "stderr", "word"):
            os.close(self._writes[name])
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == agent:
                os.write(self._writes["status"], str(status).encode())
                os._exit(0)

    def _become_agent(self) -> None:
        plan = self._plan
        for handled in (signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(handled, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number, descriptor in enumerate((self._stdin, self._writes["stdout"], self._writes["stderr"])):
            os.dup2(descriptor, number)
        os.close(self._writes["status"])
        os.chdir(plan["directory"])
        if self._run is None:
            try:
                os.execvpe(plan["argv"][0], plan["argv"], plan["environment"])
            except OSError as error:
                self._send(unstarted=True, problem=f"'{plan['argv'][0]}' cannot be started: {error.strerror}")
                os._exit(127)
        os.environ.clear()
        os.environ.update(plan["environment"])
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        word = self._run(plan)
        self._send(**word)
        os._exit("problem" in word)

    def _send(self, **word: object) -> None:
        data = memoryview(json.dumps(word).encode())
        while data:
            data = data[os.write(self._writes["word"], data) :]


def _kill_children() -> None:
    """Kills the direct children; theirs become children of this process, and the next round's."""
    for child in kernel.children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
