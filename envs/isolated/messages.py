"""Messages over a socket: bytes in, the same bytes out at the other end, as one piece.

A message is its length in 8 bytes, the highest first, and its bytes.
"""

from __future__ import annotations

import socket
import struct

_LENGTH = struct.Struct(">Q")


def sent(channel: socket.socket, data: bytes) -> None:
    """Sends a message."""
    channel.sendall(_LENGTH.pack(len(data)) + data)


def received(channel: socket.socket) -> bytes:
    """Returns the next message.

    Raises:
        ConnectionError: the other end is gone.
        TimeoutError: none came within the time limit of the socket.
    """
    [size] = _LENGTH.unpack(exactly(channel, _LENGTH.size))
    return exactly(channel, size)


def exactly(channel: socket.socket, size: int) -> bytes:
    """Returns so many bytes; raises as `received`."""
    found = bytearray()
    while len(found) < size:
        piece = channel.recv(min(size - len(found), 1 << 20))
        if not piece:
            raise ConnectionError("the other end is gone")
        found += piece
    return bytes(found)
