"""Sends and receives JSON values between two sandboxes, with a size limit and a deadline.

A frame is its length in four bytes and then a list as JSON in ASCII, which begins with a token. The end where the
solution is (`line`) may be hostile: to the other one (`Channel`) a frame that is too long, is no such list or comes too
late is an error, and nothing else is ever read into it. A guest's orders come before as one JSON object on standard
input; the host reads its report on standard output.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import json
import json.encoder
import os
import select
import time
import types
from collections.abc import Callable, Collection, Generator
from typing import Any

LONGEST = 32 * 2**20
_HEAD = 4
_PIECE = 2**16


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


def reporter() -> Callable[[list[Any]], None]:
    """Returns what writes a line to standard output, to which nothing else writes then."""
    output = os.dup(1)
    silence()

    def report(line: list[Any]) -> None:
        data = f"{json.dumps(line)}\n".encode("ascii")
        while data:
            data = data[os.write(output, data) :]

    return report


class Channel:
    """The trusted end of the socket `descriptor`; each frame of the other end begins with `token`."""

    def __init__(self, descriptor: int, token: str = "") -> None:
        os.set_blocking(descriptor, False)
        self._descriptor, self._token = descriptor, token
        self._held = b""
        self._deadline = 0.0

    def grant(self, seconds: float) -> float:
        """Gives the other end so many seconds from now on; returns the time of the clock."""
        now = time.monotonic()
        self._deadline = now + seconds
        return now

    def send(self, message: Any) -> None:
        """Sends one frame. Raises Gone: nobody reads; Late: the time is over."""
        data = memoryview(_frame(json.dumps(message)))
        while data:
            try:
                data = data[os.write(self._descriptor, data[:_PIECE]) :]
            except BlockingIOError:
                self._wait([], [self._descriptor])
            except OSError as error:
                raise Gone from error

    def receive(self) -> list[Any]:
        """Returns the next message. Raises Gone: the other end has ended; Late: the time is over; Garbled: no frame."""
        length = int.from_bytes(self._read(_HEAD), "big")
        if length > LONGEST:
            raise Garbled(f"a frame of {length} bytes")
        message: list[Any]
        try:
            token, *message = json.loads(self._read(length).decode("ascii"))
        except (ValueError, TypeError, RecursionError) as error:
            raise Garbled(f"{type(error).__name__} in a frame") from error
        if token != self._token:
            raise Garbled("a frame that is no word of this run")
        return message

    def _read(self, count: int) -> bytes:
        """Returns so many bytes; keeps what came with them."""
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
        data = b"".join(pieces)
        self._held = data[count:]
        return data[:count]

    def _wait(self, reading: list[int], writing: list[int]) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0 or select.select(reading, writing, [], left) == ([], [], []):
            raise Late


def line(descriptor: int, token: str, replied: Collection[str]) -> Generator[Any, list[Any], None]:
    """Is the end of the solution: sends each message that comes and yields the reply, where its kind is `replied` to.

    It ends the process when the other end has ended. What it uses is taken before a solution can change it: it calls no
    built-in function by name. What is printed goes nowhere.
    """
    silence()
    write, read, leave, loads, number = os.write, os.read, os._exit, json.loads, int.from_bytes
    os.set_blocking(descriptor, True)
    make: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
    text = json.encoder.encode_basestring_ascii
    encoder = make(None, _refuse, text, None, ":", ",", False, False, True)

    def received(count: int) -> bytes:
        pieces = b""
        while pieces.__len__() < count:
            piece = read(descriptor, count - pieces.__len__())
            if not piece:
                leave(0)
            pieces += piece
        return pieces

    reply = None
    while True:
        message = yield reply
        body = "".join(encoder([token, *message], 0)).encode("ascii")
        data = body.__len__().to_bytes(_HEAD, "big") + body
        while data:
            data = data[write(descriptor, data) :]
        if message[0] in replied:
            text_of_reply = received(number(received(_HEAD), "big"))
            reply = text_of_reply == b"true" if text_of_reply in (b"true", b"false") else loads(text_of_reply)
        else:
            reply = None


def _frame(text: str) -> bytes:
    body = text.encode("ascii")
    return len(body).to_bytes(_HEAD, "big") + body


def _refuse(value: Any) -> Any:
    raise TypeError(type(value).__name__)
