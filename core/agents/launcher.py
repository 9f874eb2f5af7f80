"""Forks a supervisor for each episode, in a process that has imported a Python agent once.

The runner sends the packed agent, then a socket for each episode, from which a supervisor reads its plan. When the
runner dies, every supervisor ends its agent, and the launcher waits for them and removes the run's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import inspect
import json
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from grpo.core.agents.supervisor import Plan, supervise
from grpo.core.processes.loading import loading
from grpo.core.scoring.workers.transport import find_reference, value_of
from grpo.plugins import kernel
from grpo.plugins._spec.binding import BoundAgent
from grpo.plugins.agents import Access, AgentTask, Command
from grpo.plugins.child_process import receive_descriptors, receive_message, send_message

READY = b"ready"
_EVENT_LOOP = asyncio.base_events.__file__
_PATIENCE = 20  # seconds for supervisors whose runner is gone


def main(descriptor: int, modules: Sequence[str], home: str) -> None:
    """Serves until the socket `descriptor` closes; its first message is the packed Python agent, or b"" for a command.

    `modules`: what to import first. `home`: a folder for what imports write.
    """
    channel = socket.socket(fileno=descriptor)
    packed = receive_message(channel)
    try:
        for module in modules:
            importlib.import_module(module)
        run = None if not packed else _player(packed)
        kernel.adopt_orphans()  # of supervisors that are killed
    except BaseException as error:  # an import runs the user's code, which may also call sys.exit()
        traceback.print_exc()
        send_message(channel, f"{type(error).__name__}: {error}".encode())
        return
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    send_message(channel, READY)
    while True:
        try:
            _, descriptors = receive_descriptors(channel, 1, 1)
        except OSError:
            descriptors = []
        if not descriptors:
            break
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise(socket.socket(fileno=descriptors[0]), run)
        os.close(descriptors[0])
    signal.alarm(_PATIENCE)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)  # with SIGCHLD ignored, until the last one has ended
    shutil.rmtree(home, ignore_errors=True)
    with contextlib.suppress(OSError):  # another launcher's episodes are there
        Path(home).parent.rmdir()


def packed_agent(agent: BoundAgent) -> bytes:
    """Returns a Python agent as `_player` reads it."""
    place = find_reference(agent.spec.function) or value_of(agent.spec.function)
    return bytes(cloudpickle.dumps((place, dict(agent.options))))


def play_once(folder: str) -> None:
    """Plays the agent that a folder holds packed, with its plan, and writes its answer there."""
    plan = json.loads(Path(folder, "plan").read_text(encoding="utf-8"))
    with loading():
        for module in plan["modules"]:
            importlib.import_module(module)
        run = _player(Path(folder, "agent").read_bytes())
    answer = run(plan)
    if "problem" in answer:
        raise SystemExit(str(answer["problem"]))
    Path(folder, "answer").write_text(json.dumps(answer), encoding="utf-8")


def _player(packed: bytes) -> Callable[[Plan], dict[str, object]]:
    place, options = pickle.loads(packed)
    function: Callable[..., Any] = place.resolve()

    def play(plan: Plan) -> dict[str, object]:
        tempfile.tempdir = None  # the import may have asked for it
        task, access = AgentTask(**plan["task"]), Access(**plan["access"])
        code = 0
        answer: object = None
        try:
            answer = function(task, access, **options)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            if isinstance(error.code, str):
                sys.stderr.write(f"{error.code}\n")
        except BaseException as error:
            traceback.print_exception(error.with_traceback(_own_frames(error)))
            code = 1
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        if code:
            os._exit(code & 0xFF)
        if answer is None or isinstance(answer, str):
            return {"answer": answer}
        hint = " Annotate the function: -> Command." if isinstance(answer, Command) else ""
        return {"problem": f"it returned {type(answer).__name__}, and is to return str or None.{hint}"}

    return play


def _own_frames(error: BaseException) -> TracebackType | None:
    """Returns the traceback of an error from the agent's function on; whole where there is none of it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename in (__file__, asyncio.runners.__file__, _EVENT_LOOP):
        frame = frame.tb_next
    return frame or error.__traceback__


async def _awaited(answer: Any) -> object:
    return await answer
