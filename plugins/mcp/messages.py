"""Carries messages between a session and the process of a server, one JSON text a line, within limits of size.

Other output is skipped. A message that is too large is dropped; if it answered a request, the request gets an error, so
that the episode goes on.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from grpo.plugins.mcp.process import ServerProcess
from grpo.plugins.mcp.session_server import SessionServer

LARGEST = 4 * 2**20
"""Bytes of one message of a server."""
TOO_LARGE = -32099
"""The code of the error that stands in the place of an answer that is too large."""
_PIECE = 1 << 16
_HEAD = 4096  # bytes of a dropped message that are looked at
_METHOD = re.compile(rb'"method"\s*:')


class Lines:
    """Splits a server's output into lines; of one that is too long only the head is kept."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._line = bytearray()
        self._dropped = False

    def feed(self, piece: bytes) -> list[tuple[bytes, bool]]:
        """Returns the lines that end in the next piece, and for each whether it was cut."""
        lines: list[tuple[bytes, bool]] = []
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._take(end)
            lines.append((bytes(self._line), self._dropped))
            self._line.clear()
            self._dropped = False
        self._take(rest)
        return lines

    def _take(self, part: bytes) -> None:
        if self._dropped:
            return
        self._line += part
        if len(self._line) > self._largest:
            del self._line[_HEAD:]
            self._dropped = True


@asynccontextmanager
async def message_streams(
    process: ServerProcess | SessionServer, ended: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Yields the streams from and to a process for a `ClientSession`; `ended` is called when its output closes."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    incoming, read_stream = anyio.create_memory_object_stream[Any](0)
    write_stream, outgoing = anyio.create_memory_object_stream[Any](0)
    waiting: list[Any] = []  # ids of requests without an answer, the last one last

    async def read() -> None:
        lines = Lines(LARGEST)
        async with incoming:
            while piece := await reader.read(_PIECE):
                for line, cut in lines.feed(piece):
                    message: Any = None
                    if not cut:
                        with suppress(ValueError, RecursionError):
                            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                        if getattr(message, "id", None) in waiting and not hasattr(message, "method"):
                            waiting.remove(message.id)
                    elif waiting and not _METHOD.search(line):
                        error = ErrorData(code=TOO_LARGE, message=f"the result has more than {LARGEST} bytes")
                        message = JSONRPCError(jsonrpc="2.0", id=waiting.pop(), error=error)
                    if message is not None:
                        await incoming.send(SessionMessage(message))
            ended()

    async def write() -> None:
        async with outgoing:
            with suppress(ConnectionError):  # it has ended, which `read` sees too
                async for item in outgoing:
                    message = item.message
                    if isinstance(message, JSONRPCRequest):
                        waiting.append(message.id)
                    writer.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await writer.drain()

    readable, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), io.FileIO(process.stdout, "rb", closefd=False)
    )
    writable, flow = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, io.FileIO(process.stdin, "wb", closefd=False)
    )
    writer = asyncio.StreamWriter(writable, flow, None, loop)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield read_stream, write_stream
        finally:
            tasks.cancel_scope.cancel()
            readable.close()
            writable.abort()
