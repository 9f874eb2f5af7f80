"""Reads JSON lines by where each begins in its file, so that only that is kept in memory.

A row is read as it was written, whatever the types of its columns: two lines need not agree. What is not stored as
JSON lines (a table of texts, a list of objects, a compressed file) becomes a temporary file of them, which has no name
and is gone with the process.
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
_BLANKS = b" \t\r\n"


class JsonLines:
    """The rows of an open file, whose descriptor is copied, so that it may be closed.

    For messages: `path`, the file that they are from; `unit`, what a row is there, "line" or "row"; `numbers`, those of
    the rows there, by default of the lines.
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

    def row(self, index: int) -> Any:
        """Reads one row. Raises DatasetError: it is no JSON, or the file is not the one that it was."""
        self._refuse_changed()
        start = self._starts[index]
        return self._parsed(os.pread(self._file, self._ends[index] - start, start), index)

    def scan(self, first: int, last: int) -> Iterator[Any]:
        """Reads rows from `first` to before `last`, block by block; raises what `row` raises."""
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
    """Writes rows, numbered as in the file that they are from, to a temporary file and returns them."""
    numbers = array("q")
    with tempfile.TemporaryFile() as file:
        for number, row in rows:
            file.write(json.dumps(row).encode() + b"\n")
            numbers.append(number)
        file.flush()
        return JsonLines(file, path, unit, numbers)


def _index(file: int) -> tuple[array[int], array[int], array[int]]:
    """Returns where the lines of a file begin and end, and their numbers from 1; blank lines have none."""
    import numpy

    starts, ends, numbers = array("q"), array("q"), array("q")
    size, at, begin, line = os.fstat(file).st_size, 0, 0, 0
    if os.pread(file, 3, 0) == b"\xef\xbb\xbf":
        begin = 3
    while at < size:
        block = os.pread(file, _BLOCK, at)
        if not block:
            break
        stops = numpy.flatnonzero(numpy.frombuffer(block, numpy.uint8) == ord("\n")).astype(numpy.int64) + at + 1
        at += len(block)
        if at >= size and (stops[-1] if len(stops) else begin) < at:
            stops = numpy.append(stops, at)  # the last line has no end
        if not len(stops):
            continue
        begins = numpy.concatenate((numpy.array([begin], numpy.int64), stops[:-1]))
        begin = int(stops[-1])
        filled = numpy.ones(len(stops), bool)
        for empty in numpy.flatnonzero(_may_be_blank(file, block, begins, at - len(block))):
            filled[empty] = bool(os.pread(file, int(stops[empty] - begins[empty]), int(begins[empty])).strip())
        lines = numpy.arange(line + 1, line + 1 + len(stops), dtype=numpy.int64)
        line += len(stops)
        for kept, values in ((starts, begins), (ends, stops), (numbers, lines)):
            kept.frombytes(values[filled].tobytes())
    return starts, ends, numbers


def _may_be_blank(file: int, block: bytes, begins: Any, base: int) -> Any:
    """Returns which of the lines that end in a block begin with a blank."""
    import numpy

    inside = numpy.frombuffer(block, numpy.uint8)[numpy.maximum(begins - base, 0)]
    if begins[0] < base:
        inside = inside.copy()
        inside[0] = os.pread(file, 1, int(begins[0]))[0]
    return numpy.isin(inside, numpy.frombuffer(_BLANKS, numpy.uint8))
