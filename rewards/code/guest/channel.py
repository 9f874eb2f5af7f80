"""Frames on the stream socket between two sandboxes: JSON values in and out, with a size limit and a deadline.

A frame is its length in four bytes and then JSON in ASCII. The other end may be hostile: a frame that is too long, is
not JSON or comes too late is an error of its own, and nothing else is ever read into it. What a guest is to do comes
before all that as one JSON object on its standard input.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

LONGEST = 32 * 2**20
_TRUSTED = 4  # times as long may be what the tests say: it may hold several answers
_HEAD = 4
_PIECE = 2**16
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode


class Gone(BaseException):
    """The other end has ended."""


class Late(BaseException):
    """The deadline passed while the other end was silent."""


class Garbled(Exception):
    """The other end sent no frame."""


def given() -> dict[str, Any]:
    """Returns the arguments of this program, the JSON object on its standard input."""
    pieces = []
    while piece := os.read(0, _PIECE):
        pieces.append(piece)
    arguments: dict[str, Any] = json.loads(b"".join(pieces))
    return arguments


class Channel:
    """One end of the socket.

    Args:
        descriptor: the socket.
        trusted: this is the end of the tests, which may send more than they accept.

    Attributes:
        longest: how many bytes the longest frame had that came.
        deadline: when reading and writing give up, on the clock `time.monotonic`; None for never.
    """

    def __init__(self, descriptor: int, *, trusted: bool = False) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._held = b""
        self._most_sent, self._most_received = LONGEST, _TRUSTED * LONGEST
        if trusted:
            self._most_sent, self._most_received = self._most_received, self._most_sent
        self.deadline: float | None = None
        self.longest = 0

    def send(self, message: Any) -> None:
        """Sends one frame.

        Raises:
            Gone: nobody reads.
            Late: the deadline passed.
            ValueError: the frame would be too long, or the message is not JSON.
        """
        body = _encode(message).encode("ascii")
        if len(body) > self._most_sent:
            raise ValueError(f"a message of {len(body)} bytes is too long")
        data = memoryview(len(body).to_bytes(_HEAD, "big") + body)
        while data:
            try:
                data = data[os.write(self._descriptor, data[:_PIECE]) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)
            except OSError as error:
                raise Gone from error

    def receive(self) -> Any:
        """Returns the next frame.

        Raises:
            Gone: the other end has ended.
            Late: the deadline passed.
            Garbled: what came is no frame.
        """
        length = int.from_bytes(self._read(_HEAD), "big")
        if length > self._most_received:
            raise Garbled(f"a frame of {length} bytes")
        self.longest = max(self.longest, length)
        body = self._read(length)
        try:
            message, end = _decode(body.decode("ascii"))
        except (ValueError, RecursionError) as error:
            raise Garbled(f"{type(error).__name__} in a frame") from error
        if end != length:
            raise Garbled("a frame with more than one message")
        return message

    def _read(self, count: int) -> bytes:
        """Returns so many bytes; what came with them is held for the next time."""
        pieces, missing = [self._held], count - len(self._held)
        while missing > 0:
            self._wait(select.POLLIN)
            try:
                piece = os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Gone from error
            if not piece:
                raise Gone
            pieces.append(piece)
            missing -= len(piece)
        found = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._held = found[count:]
        return found[:count]

    def _wait(self, event: int) -> None:
        """Waits until the socket is ready."""
        if event != select.POLLIN:
            self._poll.modify(self._descriptor, event)
        left = None if self.deadline is None else (self.deadline - time.monotonic()) * 1000
        late = left is not None and left <= 0
        ready = not late and self._poll.poll(left)
        if event != select.POLLIN:
            self._poll.modify(self._descriptor, select.POLLIN)
        if not ready:
            raise Late
