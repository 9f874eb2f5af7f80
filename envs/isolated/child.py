"""Serves environments in a child process: forks one process for each and answers calls over sockets.

Theory of operation. A fresh interpreter calls a function of ours, which loads what all episodes share. Each environment
is a fork of it, with a memory limit and a socket; it ends when its socket closes. Calls come as pickles of the run.
Answers are JSON: what a policy's text may have got hold of is never unpickled. Instead of serving an environment, a
fork can become a program with limits of its own, whose output the socket takes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pickle
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from grpo.plugins.child_process import receive_descriptors, receive_message, send_message
from grpo.plugins.sandbox_job import Limits

ORDER = struct.Struct(">cQ")  # what to do, and with which process
FORK, KILL, ASK = b"f", b"k", b"a"
NUMBER = struct.Struct(">Q")
BECOME = "become"
"""In the place of a method: the fork becomes a program. Its arguments: the program, its input and its limits."""
OVERWHELMED = (MemoryError, RecursionError, OverflowError)


def main(descriptor: int) -> None:
    """Serves until the socket closes."""
    control = socket.socket(fileno=descriptor)
    module, name, options, memory = pickle.loads(receive_message(control))
    try:
        make = getattr(importlib.import_module(module), name)(**options)
    except BaseException as error:
        send_message(control, _raised(error))
        return
    gc.collect()
    gc.freeze()
    send_message(control, json.dumps({"value": None}).encode())
    children: set[int] = set()
    ended: dict[int, int] = {}
    while True:
        order, descriptors = receive_descriptors(control, ORDER.size, 1)
        if len(order) < ORDER.size:
            break
        what, number = ORDER.unpack(order)
        if what == FORK:
            child = os.fork()
            if child == 0:
                control.close()
                _play(descriptors[0], make, memory)
            os.close(descriptors[0])
            children.add(child)
            control.sendall(NUMBER.pack(child))
        elif what == KILL and number in children:
            os.kill(number, signal.SIGKILL)
        elif what == ASK:
            if number in children:
                ended[number] = os.waitpid(number, 0)[1]
                children.discard(number)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(number, signal.SIGKILL)  # what it started; it led a session
            control.sendall(NUMBER.pack(ended.pop(number, 0)))
        for each in tuple(children):
            process, status = os.waitpid(each, os.WNOHANG)
            if process:
                children.discard(each)
                ended[each] = status
    for each in children:
        os.kill(each, signal.SIGKILL)


def _play(descriptor: int, make: Callable[[], Any], memory: int) -> NoReturn:
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            _limit(resource.RLIMIT_DATA, memory)
        channel = socket.socket(fileno=descriptor)
        env = make()
        with contextlib.suppress(ConnectionError):
            while True:
                method, args, options = pickle.loads(receive_message(channel))
                if method == BECOME:
                    _become(channel, *args)
                try:
                    answer = json.dumps({"value": _called(env, method, args, options)}).encode()
                except BaseException as error:
                    answer = _raised(error)
                send_message(channel, answer)
    finally:
        os._exit(0)


def _become(channel: socket.socket, program: str, given: bytes, limits: Limits) -> NoReturn:
    """Runs a program in this process and ends it, with 0 unless the program raises something."""
    code = 1
    try:
        os.dup2(channel.fileno(), 1)
        channel.close()
        _limit(resource.RLIMIT_CPU, int(limits.cpu_seconds) + 1)
        _limit(resource.RLIMIT_AS, limits.memory_bytes)
        _limit(resource.RLIMIT_FSIZE, 0)
        sys.stdin = io.TextIOWrapper(io.BytesIO(given))
        exec(compile(program, "program", "exec", dont_inherit=True), {"__name__": "__main__"})
        code = 0
    finally:
        os._exit(code)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    with contextlib.suppress(ValueError, OSError):  # a system that has no such limit
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _called(env: Any, method: str, args: Any, options: Any) -> Any:
    """Calls a method; `tools` returns the schemas, and one tool is called by its name."""
    if method == "tools":
        return [tool.json_schema for tool in env.tools]
    if method == "call":
        (name,) = args
        return next(tool for tool in env.tools if tool.__name__ == name)(**options)
    return getattr(env, method)(*args, **options)


def _raised(error: BaseException) -> bytes:
    """Names a cause such as a full memory instead of the error that it led to."""
    chain: list[BaseException] = []
    while error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__ or error
    error = next((each for each in chain if isinstance(each, OVERWHELMED)), chain[0])
    try:
        text = str(error)
    except Exception:  # an exception that cannot be shown
        text = ""
    return json.dumps({"raised": [type(error).__name__, text]}).encode()
