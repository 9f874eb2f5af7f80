"""Frames on the stream socket between two sandboxes: JSON values in and out, with a size limit and a deadline.

A frame is its length in four bytes and then JSON in ASCII. The other end may be hostile: a frame that is too long, is
not JSON or comes too late is an error of its own, and nothing else is ever read into it.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

LONGEST = 8 * 2**20
_HEAD = 4
_PIECE = 2**16


class Gone(BaseException):
    """The other end has ended."""


class Late(BaseException):
    """The deadline passed while the other end was silent."""


class Garbled(Exception):
    """The other end sent no frame."""


class Channel:
    """One end of the socket.

    Attributes:
        deadline: when reading and writing give up, on the clock `time.monotonic`; None for never.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.deadline: float | None = None

    def send(self, message: Any) -> None:
        """Sends one frame.

        Raises:
            Gone: nobody reads.
            Late: the deadline passed.
            ValueError: the frame would be too long, or the message is not JSON.
        """
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
        if len(body) > LONGEST:
            raise ValueError(f"a message of {len(body)} bytes is too long")
        data = memoryview(len(body).to_bytes(_HEAD, "big") + body)
        while data:
            self._wait(select.POLLOUT)
            try:
                data = data[os.write(self._descriptor, data[:_PIECE]) :]
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
        if length > LONGEST:
            raise Garbled(f"a frame of {length} bytes")
        body = self._read(length)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Garbled(f"{type(error).__name__} in a frame") from error

    def _read(self, count: int) -> bytes:
        pieces: list[bytes] = []
        while count:
            self._wait(select.POLLIN)
            try:
                piece = os.read(self._descriptor, min(count, _PIECE))
            except OSError as error:
                raise Gone from error
            if not piece:
                raise Gone
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _wait(self, event: int) -> None:
        """Waits until the socket is ready."""
        if self.deadline is None:
            if event == select.POLLOUT:
                return
            self._poll.modify(self._descriptor, event)
            self._poll.poll()
            return
        left = self.deadline - time.monotonic()
        self._poll.modify(self._descriptor, event)
        if left <= 0 or not self._poll.poll(left * 1000):
            raise Late
