"""Defines text streams that outlive their readers: printing to a closed pipe or a full disk ends no process."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO

MOST_PRINTED = 1 << 20  # characters that plugins may print to one stream; a terminal shows about as many in a second
DROPPED = "\n(more than 1 MiB was printed: what plugins print here from now on is dropped)\n"


class LastingStream(io.TextIOBase):
    """Writes to another stream until that fails; then drops all, telling `lost` the reason once."""

    def __init__(self, stream: TextIO, lost: Callable[[str], None] = lambda reason: None) -> None:
        self._stream: TextIO | None = stream
        self._lost = lost

    def write(self, text: str) -> int:
        """Writes what can be written; raises nothing, whatever becomes of the stream."""
        if self._stream is not None:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                self.write(text.encode(encoding, "backslashreplace").decode(encoding))
            except (OSError, ValueError) as error:  # the second of a stream that was closed
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Has the other stream write what it holds back."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._give_up(error)

    def isatty(self) -> bool:
        """Tells whether it ends at a terminal."""
        with suppress(ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def fileno(self) -> int:
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> Any:
        """The bytes below the text, as far as the other stream has some; they are not protected."""
        return getattr(self._stream, "buffer", None)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a property there, too, which cannot be overridden in types
        return getattr(self._stream, "encoding", None) or "utf-8"

    def _give_up(self, error: OSError | ValueError) -> None:
        stream, self._stream = self._stream, None
        with suppress(OSError, ValueError):
            # What it holds back is tried once more when Python ends, and so is what others print there.
            assert stream is not None
            _to_nowhere(stream.fileno())
        self._lost((error.strerror if isinstance(error, OSError) else None) or str(error))


class LimitedStream(LastingStream):
    """The same for what plugins print, of which only so much is shown."""

    def __init__(self, stream: TextIO, most: int = MOST_PRINTED) -> None:
        super().__init__(stream)
        self._left = most

    def write(self, text: str) -> int:
        """Writes what is left to be shown."""
        if self._left > 0:
            super().write(text[: self._left])
            self._left -= len(text)
            if self._left <= 0:
                super().write(DROPPED)
        return len(text)


@contextmanager
def lasting_output(lost: str) -> Iterator[None]:
    """Puts lasting streams in the places of stdout and stderr; writes `lost` to the latter when the former ends."""
    err = LastingStream(sys.stderr)

    def tell(reason: str) -> None:
        err.write(f"warning: the output cannot be written any more: {reason}. {lost}\n")
        err.flush()

    with redirect_stderr(err), redirect_stdout(LastingStream(sys.stdout, tell)):
        try:
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()


@contextmanager
def limited_prints() -> Iterator[None]:
    """Shows only so much of what is printed inside by others than those who hold the streams already."""
    with redirect_stdout(LimitedStream(sys.stdout)), redirect_stderr(LimitedStream(sys.stderr)):
        yield


def open_standard_streams() -> None:
    """Opens closed standard streams; else the next file gets their number, and a print goes into a checkpoint."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            _to_nowhere(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
