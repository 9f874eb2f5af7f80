"""Reads JSON lines by where each begins in its file, so that only that is kept in memory.

Two lines need not agree in their columns or types. What is not stored as JSON lines (a table of texts, a list of
objects, a compressed file) becomes a temporary file of them, without a name, that is gone with the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from grpo.plugins.errors import DatasetError, json_fault

_BLOCK = 1 << 22  # bytes that are read at once
_MARK = b"\xef\xbb\xbf"  # of UTF-8, before the first line


class JsonLines:
    """The rows of an open file, whose descriptor is copied, so that it may be closed.

    For messages: `path`, the original file; `unit`, "line" or "row"; `numbers` of the rows there, by default of lines.
    """

    def __init__(self, file: IO[bytes], path: Path, unit: str = "line", numbers: array[int] | None = None) -> None:
        self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._path = path
        self._unit = unit
        self._state = self._now()
        self._starts, self._ends, lines = _index(self._file)
        self._numbers = lines if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._starts)

    def place(self, index: int) -> str:
        return f"{self._path}, {self._unit} {self._numbers[index]}"

    def scan(self, first: int, last: int) -> Iterator[Any]:
        """Reads rows `first` to before `last`, block by block. Raises DatasetError: no JSON, or the file changed."""
        while first < last:
            self._refuse_changed()
            base, until = self._starts[first], first + 1
            while until < last and self._ends[until] - base <= _BLOCK:
                until += 1
            block = os.pread(self._file, self._ends[until - 1] - base, base)
            for index in range(first, until):
                yield self._parsed(block[self._starts[index] - base : self._ends[index] - base], index)
            first = until

    def digest(self) -> bytes:
        hasher, at = hashlib.sha256(), 0
        while block := os.pread(self._file, _BLOCK, at):
            hasher.update(block)
            at += len(block)
        return hasher.digest()

    def _parsed(self, line: bytes, index: int) -> Any:
        try:
            return json.loads(line.rstrip(b"\r\n").decode())
        except UnicodeDecodeError as error:
            raise DatasetError(
                f"{self.place(index)}: not UTF-8 at byte {error.start + 1}. Save the file as UTF-8."
            ) from error
        except json.JSONDecodeError as error:
            raise DatasetError(
                f"{self.place(index)}: not JSON: {json_fault(error)}. Write one JSON object per line."
            ) from error
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{self.place(index)}: JSON that cannot be read: {error}. Simplify the line.") from error

    def _now(self) -> tuple[int, int]:
        state = os.fstat(self._file)
        return state.st_size, state.st_mtime_ns

    def _refuse_changed(self) -> None:
        if self._now() != self._state:
            raise DatasetError(
                f"{self._path} was changed while its rows are in use: they are read where they lie. Write changes into "
                "a new file, and start again with the rows that this run began with."
            )


def spooled(rows: Iterable[tuple[int, Any]], path: Path, unit: str) -> JsonLines:
    """Writes rows, with their numbers in the original file, to a temporary file."""
    numbers = array("q")
    with tempfile.TemporaryFile() as file:
        for number, row in rows:
            file.write(json.dumps(row).encode() + b"\n")
            numbers.append(number)
        file.flush()
        return JsonLines(file, path, unit, numbers)


def _index(file: int) -> tuple[array[int], array[int], array[int]]:
    """Where lines begin and end, and their numbers from 1; blank lines have none."""
    starts, ends, numbers = array("q"), array("q"), array("q")
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, "rb", closefd=False) as lines:
        end = 0
        for number, line in enumerate(lines, start=1):
            begin, end = end, end + len(line)
            if number == 1 and line.startswith(_MARK):
                begin, line = len(_MARK), line.removeprefix(_MARK)
            if not line.isspace() and line:
                starts.append(begin)
                ends.append(end)
                numbers.append(number)
    return starts, ends, numbers
