"""Reads tables of texts and lists of JSON, one row after another: CSV with any usual delimiter, and `.json` files.

Nothing is taken for a number or for missing in a table, so that an answer stays what was written.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from grpo.plugins.errors import DatasetError

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST = 2**31 - 1  # characters of a field; the library's own limit is 131,072
_BLANKS = " \t\r\n"
_CHUNK = 1 << 20  # characters of JSON that are read at once


def opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Opens a file, and unpacks it on the way if its name ends in `.gz`."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def read_csv(path: Path, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the number of a line and its fields by the names in the first line.

    Args:
        delimiter: what its name promises; another one counts where it divides the first lines better.

    Raises:
        DatasetError: it is no table of texts.
    """
    try:
        with _long_fields(), opened(path) as binary, io.TextIOWrapper(binary, "utf-8-sig", newline="") as file:
            delimiter = _delimiter(file, delimiter)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = next(reader, [])
            if len(set(names)) < len(names):
                raise DatasetError(f"{path}, line 1: two columns of one name in: {', '.join(names)}. Rename one.")
            for row in reader:
                if row and len(row) != len(names):
                    raise DatasetError(
                        f"{path}, line {reader.line_num}: {len(row)} fields where the first line names {len(names)} "
                        f"columns ({', '.join(names)}). Put texts that hold {delimiter!r} or line ends into double "
                        "quotes."
                    )
                if row:
                    yield reader.line_num, dict(zip(names, row, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: not readable as a table of texts: {error}. Save it again, as UTF-8.") from error


def read_json_list(path: Path) -> Iterator[tuple[int, Any]]:
    """Yields the elements of a file that is one list, with their numbers from 1.

    Raises:
        DatasetError: it is no such file.
    """
    try:
        with opened(path) as binary:
            encoding = json.detect_encoding(binary.read(4))
            binary.seek(0)
            with io.TextIOWrapper(binary, encoding) as file:
                yield from enumerate(_elements(_Window(file)), start=1)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: {_json_fault(path, error)}. Write one list of objects.") from error


class _Window:
    """The part of a JSON text that is being read."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def next(self, *expected: str) -> str:
        """Returns the next character that is no blank, "" at the end; steps over it if it is one of `expected`."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANKS:
                self._at += 1
            if self._at < len(self._text):
                character = self._text[self._at]
                self._at += character in expected
                return character
            self._text, self._at = self._file.read(_CHUNK), 0
            if not self._text:
                return ""

    def value(self) -> Any:
        """Returns the value that comes next; raises `ValueError` where there is none."""
        size, at_end = _CHUNK, False
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                if end < len(self._text) or at_end:  # else a number may go on
                    self._at = end
                    return value
            except ValueError:
                if at_end:
                    raise
            more = self._file.read(size)
            at_end = not more
            self._text, self._at = self._text[self._at :] + more, 0
            size *= 2


def _elements(window: _Window) -> Iterator[Any]:
    """Yields the elements of a JSON list, holding a few of them at a time; raises `ValueError` where it is none."""
    if window.next("[") != "[":
        raise ValueError("it is no list")
    if window.next("]") != "]":
        while True:
            window.next()
            yield window.value()
            if (character := window.next(",", "]")) == "]":
                break
            if character != ",":
                raise ValueError("the list has no end")
    if window.next():
        raise ValueError("something follows the list")


def _json_fault(path: Path, error: Exception) -> str:
    """Returns what is wrong with a file that is no list of JSON, with its place where that is known."""
    try:
        with opened(path) as file:
            holds = type(json.loads(file.read())).__name__
    except (ValueError, RecursionError) as fault:
        error, holds = fault, "list"
    return f"not JSON: {error}" if holds == "list" else f"holds a {holds}"


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _delimiter(file: IO[str], named: str) -> str:
    """Returns what divides a table: with what the second line has as many fields as the first, and most of them."""
    lines = [file.readline(), file.readline()]

    def fields(delimiter: str) -> tuple[bool, int]:
        first, second = (len(next(csv.reader([line], delimiter=delimiter), ())) for line in lines)
        return first == second and first > 1, first

    return max((named, *_DELIMITERS), key=fields)
