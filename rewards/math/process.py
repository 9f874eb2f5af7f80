"""Compares answers under a hard time limit, from any thread of any process.

Theory of operation. Computer algebra can hang inside one C call and fill the memory, so a comparison runs in a process
of its own (`rewards/math/child.py`), which is reused, and killed when it is late. There are as many as processors; each
calling thread has one at a time. A forked process starts its own.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from functools import lru_cache
from typing import Any

from grpo.plugins.errors import PluginError

SECONDS = 2.0
"""Processor time that one comparison may take."""

WAIT = 10
"""How many times as much wall time it may take: a verdict must not depend on what else the machine is doing."""

_STARTING = 45.0
_LATE = 0.5


class Undecided(Exception):
    """The comparison came to no end within its limits."""


class Exhausted(Undecided):
    """The comparison used up its processor time or broke its process."""


class Unreadable(Undecided):
    """The libraries broke off at the answer, or it used up their time where the gold does not: it is wrong."""


class _Process:
    def __init__(self) -> None:
        import subprocess

        from grpo.plugins.child_process import ChildProcess

        self._child = ChildProcess(
            "grpo.rewards.math.child", environment={"OMP_NUM_THREADS": "1", **os.environ}, stdout=subprocess.DEVNULL
        )
        try:
            trouble = self._receive(_STARTING).get("error", "")
        except BaseException:
            self.close()
            raise
        if trouble:
            self.close()
            raise PluginError(
                f"answers cannot be compared: {trouble.strip().splitlines()[-1]}. The verifier 'math' needs "
                f"math-verify and sympy, which come with grpo-kit; install it again.\n{trouble}"
            )

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Returns the reply to a request. Raises Undecided: no reply came; the process is of no more use."""
        import json

        from grpo.plugins.child_process import send_message

        message = json.dumps({**request, "seconds": seconds, "wall": WAIT * seconds}).encode()
        try:
            self._child.channel.settimeout(WAIT * seconds + _LATE)
            send_message(self._child.channel, message)
        except OSError as error:
            raise Undecided("the process that compares had ended") from error
        return self._receive(WAIT * seconds + _LATE)

    def _receive(self, seconds: float) -> dict[str, Any]:
        import json

        from grpo.plugins.child_process import receive_message

        deadline = time.monotonic() + seconds
        self._child.channel.settimeout(seconds)
        try:
            reply: dict[str, Any] = json.loads(receive_message(self._child.channel))
        except OSError:
            raise self._ending(deadline) from None
        return reply

    def _ending(self, deadline: float) -> Undecided:
        import signal

        late = "the comparison was ended at its time limit"
        code = self._child.wait(0.2)
        if code is None:
            return Undecided(late)
        if code == -signal.SIGPROF:
            return Exhausted(late)
        if code == -signal.SIGALRM or time.monotonic() >= deadline:
            return Undecided(late)
        reason = f"the comparison broke its process (exit code {code})"
        return Undecided(reason) if code == -signal.SIGKILL else Exhausted(reason)

    def close(self) -> None:
        self._child.end()

    def forget(self) -> None:
        """Lets go of a process that belongs to the parent of this forked one."""
        self._child.forget()


_places = threading.BoundedSemaphore(os.cpu_count() or 1)
_idle: list[_Process] = []


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()


def _forget_idle() -> None:
    """After a fork: lets go of the parent's processes, and makes places of its own."""
    global _places
    _places = threading.BoundedSemaphore(os.cpu_count() or 1)
    while _idle:
        _idle.pop().forget()


os.register_at_fork(after_in_child=_forget_idle)


def compare(operation: str, gold: str, text: str, *, seconds: float = SECONDS, **options: Any) -> bool | None:
    """Compares a gold and an answer (`text`: the statement of it, or the completion) in another process.

    `operation`: "same", "trl", "open_r1" or "open_r1_latex", functions of `math_equal`; `options`: their further
    arguments. `seconds`: processor time that the comparison may take, and a tenth of the wall time; starting a process
    has 45 s of its own, and waiting for a free one has no limit.

    A process that ends is blamed on the answer only when a second, fresh one ends alike: the first may have been killed
    from outside, or a virtual machine may have counted time that it never gave. Raises Undecided: the gold or other
    work took too long, or the process was ended from outside; Unreadable: the libraries raised an exception, or the
    answer alone used up the time or broke the process; PluginError: the libraries are missing or broken.
    """
    try:
        return _compare(operation, gold, text, seconds, **options)
    except Unreadable:
        raise
    except Undecided:
        pass
    try:
        return _compare(operation, gold, text, seconds, **options)
    except Exhausted as error:
        if _is_comparable(operation, gold, seconds, **options):
            raise Unreadable(str(error)) from error
        raise


@lru_cache(maxsize=4096)
def _is_comparable(operation: str, gold: str, seconds: float, **options: Any) -> bool:
    """If a gold can be compared with a number, an answer that cannot be compared with it is to blame."""
    try:
        _compare(operation, gold, r"\boxed{17}", seconds, **options)
    except Exhausted:
        return False
    except Undecided:
        return True
    return True


def _compare(operation: str, gold: str, text: str, seconds: float, **options: Any) -> bool | None:
    with _places:
        try:
            process = _idle.pop()
        except IndexError:
            process = _Process()
        try:
            reply = process.ask({"op": operation, "gold": gold, "text": text, **options}, seconds)
        except BaseException:
            process.close()
            raise
        _idle.append(process)
    if "ok" not in reply:
        raise Unreadable(reply["unreadable"])
    ok: bool | None = reply["ok"]
    return ok
