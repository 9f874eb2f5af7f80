"""Reads tables of texts and lists of JSON: CSV with any usual delimiter, and `.json` files.

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

from grpo.plugins.errors import DatasetError, with_article

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST = 2**31 - 1  # characters of a field; the library's own limit is 131,072


def opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Opens a file, and unpacks it on the way if its name ends in `.gz`."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def read_csv(path: Path, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the number of a line and its fields by the names in the first line; DatasetError for no table of texts.

    A delimiter that divides the first lines better than the file name's own wins.
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
    except csv.Error as error:
        raise DatasetError(
            f"{path}: not readable as a table of texts: {error}. Close every double quote, and double those within a "
            "text."
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not readable as a table of texts: {error}. Save it again, as UTF-8.") from error


def read_json_list(path: Path) -> Iterator[tuple[int, Any]]:
    """Yields the elements of a file that is one list, with their numbers from 1. Raises DatasetError: no such file."""
    try:
        with opened(path) as file:
            values = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not JSON: {error}. Write one list of objects.") from error
    if not isinstance(values, list):
        raise DatasetError(f"{path}: holds {with_article(type(values).__name__)}. Write one list of objects.")
    yield from enumerate(values, start=1)


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _delimiter(file: IO[str], named: str) -> str:
    """The delimiter with which the second line has as many fields as the first, and the most of them."""
    lines = [file.readline(), file.readline()]

    def fields(delimiter: str) -> tuple[bool, int]:
        first, second = (len(next(csv.reader([line], delimiter=delimiter), ())) for line in lines)
        return first == second and first > 1, first

    return max((named, *_DELIMITERS), key=fields)
