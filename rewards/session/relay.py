"""Copies bytes between connections; as a program, between the ports of a container and sockets in a folder.

The program runs beside a container, in its network. It listens at ports of 127.0.0.1 there, and connects each caller
with the socket of the folder that is named by the port. At the socket `IN` it takes connections to ports of the
container, whose first two bytes are the number. It ends when the socket `OWNER`, at which nobody answers, is closed. It
imports the standard library only, and runs by its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

IN, OWNER = "in", "owner"
NUMBER = 2  # bytes of a port
PIECE = 1 << 16
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect: Callable[[], Awaitable[Streams]]
) -> None:
    """Joins a connection with a new one until both end. Raises OSError: there is none; the first is then closed."""
    ends = [writer]
    try:
        far_reader, far_writer = await connect()
        ends.append(far_writer)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        for end in ends:
            end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on the end of the stream, too."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def relay(folder: str, ports: list[int]) -> None:
    """Serves until its owner has ended."""
    owner, _ = await asyncio.open_unix_connection(f"{folder}/{OWNER}")

    async def outward(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await join(reader, writer, lambda: asyncio.open_unix_connection(path))

    async def inward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            number = int.from_bytes(await reader.readexactly(NUMBER), "big")
            await join(reader, writer, lambda: asyncio.open_connection("127.0.0.1", number))

    for port in ports:
        await asyncio.start_server(partial(outward, f"{folder}/{port}"), "127.0.0.1", port, backlog=128)
    await asyncio.start_unix_server(inward, f"{folder}/{IN}")
    with contextlib.suppress(OSError):
        await owner.read()
    os._exit(0)  # whatever is still connected


if __name__ == "__main__":
    asyncio.run(relay(sys.argv[1], [*map(int, sys.argv[2:])]))
