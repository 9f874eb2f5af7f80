"""What a solution prints: writes in, the text of them out, up to a limit.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import io
from typing import Any

MOST_OUTPUT = 2**16
"""Characters kept until they are taken."""


class Output(io.TextIOBase):
    """What the solution prints, kept up to a limit until the next answer.

    Attributes:
        buffer: takes bytes, as that of the interpreter's own stream.
    """

    encoding, errors, mode, name = "utf-8", "strict", "w", "<stdout>"

    def __init__(self) -> None:
        self.buffer = _Bytes(self)
        self._pieces: list[str] = []
        self._room = MOST_OUTPUT

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._room > 0:
            self._pieces.append(text[: self._room])
            self._room -= len(text)
        return len(text)

    def fileno(self) -> int:
        return 1

    def reconfigure(self, **_: Any) -> None:
        """Takes what the interpreter's own stream takes; there is nothing to set here."""

    def taken(self) -> str:
        """Returns and forgets what was written."""
        text = "".join(self._pieces)
        self._pieces, self._room = [], MOST_OUTPUT
        return text


class _Bytes(io.BufferedIOBase):
    """The bytes that the solution prints, as the text that they are."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        self._output.write(bytes(data).decode("utf-8", "replace"))
        return len(data)
