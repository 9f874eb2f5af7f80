"""Runs the sandboxes of a container, as its first process; jobs and results travel as frames.

It is the same pool as outside (`pool.LocalPool`). A stalled reader would block the engine's own copy of the stream, so
the agent ends the container when a frame cannot be written for `_PATIENCE` seconds, and when its input ends. It imports
only the standard library and what the bundle holds.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from contextlib import closing
from typing import Any

from grpo.plugins.errors import SandboxUnavailable
from grpo.rewards.sandbox.frames import LENGTH, pack_result, pack_values, unpack_job
from grpo.rewards.sandbox.plan import Plans
from grpo.rewards.sandbox.pool import LocalPool

_PATIENCE = 60.0
_GATHERED = 0.003  # seconds in which results are gathered into one write while others are still running


def main(plan: dict[str, Any]) -> None:
    """Serves until the input ends; the plan says how many sandboxes there are and what may be missing."""
    os.set_blocking(1, False)
    try:
        pool = LocalPool(Plans(sys.executable, plan["allow_degraded"]), plan["slots"])
    except SandboxUnavailable as error:
        _write(pack_values({"error": str(error)}))
        return
    _write(pack_values({"ready": dict(pool.capabilities())}))
    with closing(pool):
        asyncio.run(_serve(pool))


async def _serve(pool: LocalPool) -> None:
    reader = asyncio.StreamReader(limit=2**20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", buffering=0))
    running: set[asyncio.Task[None]] = set()
    outbox: list[bytes] = []

    def flush() -> None:
        frames = b"".join(outbox)
        outbox.clear()
        _write(frames)

    async def answer(frame: bytes) -> None:
        number, job = unpack_job(frame)
        [result] = await pool.run([job])
        outbox.append(pack_result(number, result))
        if len(running) == 1:
            flush()
        elif len(outbox) == 1:
            loop.call_later(_GATHERED, flush)

    while True:
        try:
            [size] = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            frame = await reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return
        task = asyncio.create_task(answer(frame))
        running.add(task)
        task.add_done_callback(running.discard)


def _write(frame: bytes) -> None:
    """Writes a frame whole, or ends the container: a partial frame would spoil all that follow."""
    view, deadline = memoryview(frame), time.monotonic() + _PATIENCE
    while view:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([], [1], [], left)[1]:
            os._exit(1)
        try:
            view = view[os.write(1, view[:65536]) :]
        except BlockingIOError:
            continue
        except OSError:
            os._exit(1)
