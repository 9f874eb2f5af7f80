"""Sends and receives JSON values between two sandboxes, with a size limit and a deadline.

A frame is its length in four bytes and then JSON in ASCII. The other end may be hostile: a frame that is too long, is
not JSON or comes too late is an error of its own, and nothing else is ever read into it. What a guest is to do comes
before all that as one JSON object on its standard input; the host reads its report on standard output.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import select
import time
import types
from collections.abc import Callable
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


def orders() -> Any:
    """Returns what this program is to do as an object with attributes; `tests_judge` says what they mean."""
    pieces = []
    while piece := os.read(0, _PIECE):
        pieces.append(piece)
    return types.SimpleNamespace(**json.loads(b"".join(pieces)))


def silence() -> None:
    """Sends what is printed nowhere, and empties standard input, from which the orders came."""
    nowhere = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def reporter(nonce: str) -> Callable[[list[Any]], None]:
    """Returns what writes a line to standard output, to which nothing else writes then; it begins with the nonce."""
    output = os.dup(1)
    silence()

    def report(line: list[Any]) -> None:
        data = f"{nonce} {json.dumps(line)}\n".encode("ascii")
        while data:
            data = data[os.write(output, data) :]

    return report


class Channel:
    """One end of the socket.

    Args:
        descriptor: the socket.
        trusted: this is the end of the tests, which may send more than they accept.

    Attributes:
        deadline: when reading and writing give up, on the clock `time.monotonic`; None for never.
    """

    def __init__(self, descriptor: int, *, trusted: bool = False) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._held = b""
        self._most_sent, self._most_received = LONGEST, _TRUSTED * LONGEST
        if trusted:
            self._most_sent, self._most_received = self._most_received, self._most_sent
        self.deadline: float | None = None

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
                self._wait([], [self._descriptor])
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
            self._wait([self._descriptor], [])
            try:
                piece = os.read(self._descriptor, _PIECE)
            except OSError as error:
                raise Gone from error
            if not piece:
                raise Gone
            pieces.append(piece)
            missing -= len(piece)
        found = b"".join(pieces)
        self._held = found[count:]
        return found[:count]

    def _wait(self, reading: list[int], writing: list[int]) -> None:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and (left <= 0 or select.select(reading, writing, [], left) == ([], [], [])):
            raise Late
        if left is None:
            select.select(reading, writing, [])
