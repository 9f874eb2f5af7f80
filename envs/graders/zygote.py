"""Forks a process for each grader request where no sandbox is used, and sends back what it printed.

Theory of operation. A fresh interpreter with an empty environment imports the library once and forks for each request;
the child gets limits of processor time, memory and files. This is no wall: the child can read files and use the
network, as any program of the user.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import NoReturn

from grpo.plugins.child_process import receive_message, send_message
from grpo.plugins.sandbox_job import Limits

ANSWER = struct.Struct(">i?dd")  # status as of waitpid, ended for its time, seconds of processor, seconds on the clock
READY = b"ready"
_READ = 65536

Request = tuple[str, bytes, Limits]  # program, stdin, limits


def main(descriptor: int, package: str) -> None:
    """Serves until the socket closes."""
    channel = socket.socket(fileno=descriptor)
    importlib.import_module(package)
    gc.collect()
    gc.freeze()
    send_message(channel, READY)
    with contextlib.suppress(ConnectionError):  # the other end is gone
        while True:
            send_message(channel, _run(pickle.loads(receive_message(channel)), descriptor))


def _run(request: Request, descriptor: int) -> bytes:
    limits = request[2]
    began = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _become(request, writing, descriptor)
    os.close(writing)
    printed, late = bytearray(), False
    while not late:
        left = began + limits.wall_seconds - time.monotonic()
        late = left <= 0 or len(printed) > limits.output_bytes
        if not late and select.select([reading], [], [], left)[0]:
            piece = os.read(reading, _READ)
            if not piece:
                break
            printed += piece
    os.close(reading)
    if late:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started; it led a session
    cpu = usage.ru_utime + usage.ru_stime
    return ANSWER.pack(status, late, cpu, time.monotonic() - began) + bytes(printed[: limits.output_bytes])


def _become(request: Request, writing: int, descriptor: int) -> NoReturn:
    """Runs the program in a forked child and ends the process."""
    code = 1
    try:
        program, given, limits = request
        os.setsid()
        os.close(descriptor)
        os.dup2(writing, 1)
        _limit(resource.RLIMIT_CPU, int(limits.cpu_seconds) + 1)
        _limit(resource.RLIMIT_AS, limits.memory_bytes)
        _limit(resource.RLIMIT_FSIZE, 0)
        _limit(resource.RLIMIT_CORE, 0)
        sys.stdin = io.TextIOWrapper(io.BytesIO(given))
        exec(compile(program, "grader", "exec", dont_inherit=True), {"__name__": "__main__"})
        code = 0
    finally:
        os._exit(code)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    with contextlib.suppress(ValueError, OSError):  # a system that has no such limit
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
