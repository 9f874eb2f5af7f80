"""Reads the error output of an MCP server in a thread and keeps its end, for messages."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import BinaryIO

from grpo.plugins.errors import GrpoError

_PIECE = 1 << 16
_KEPT = 20  # pieces
_LONGEST = 500
_READING = 0.2  # seconds


class ErrorOutput:
    """A program's error output, from an unbuffered stream that is read to its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._pieces: deque[bytes] = deque(maxlen=_KEPT)
        self._reading = threading.Thread(target=self._read, name="grpo-mcp-stderr", daemon=True)
        self._reading.start()

    def wait(self) -> None:
        """Waits a moment for the output of a program that has just ended."""
        self._reading.join(_READING)

    def last_words(self) -> str:
        """Returns the end of the output, on one line."""
        return " ".join(b"".join([*self._pieces]).decode("utf-8", "replace").split())[-_LONGEST:]

    def _read(self) -> None:
        with self._stream, suppress(OSError, ValueError, GrpoError):
            while piece := self._stream.read(_PIECE):
                self._pieces.append(piece)
