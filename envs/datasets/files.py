"""Opens local files of rows by their names, and divides rows that come without splits.

A `.jsonl` or `.arrow` file is read where it lies. Any other becomes a temporary file that can be read row by row.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from grpo.envs.datasets.json_lines import JsonLines, spooled
from grpo.envs.datasets.stored import Store, StoredRows
from grpo.envs.datasets.tables import TableRows
from grpo.envs.datasets.texts import opened, read_csv, read_json_list
from grpo.plugins.errors import DatasetError

T = TypeVar("T", bound=Sequence[Any])

_TEXTS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
SUFFIXES = (".jsonl", ".parquet", ".arrow", *_TEXTS[1:], *(f"{suffix}.gz" for suffix in _TEXTS))
_HEAD = 4096  # bytes in which a file of JSON begins with something
HELD_OUT_SHARE = 10
HELD_OUT_MOST = 500


def held_out(rows: T, split: str, where: str) -> T:
    """Divides rows that come without splits: the last tenth, at least 1 and at most 500 rows, is the test split.

    Raises DatasetError: there are no rows, only one row for the split `train`, or the split has another name.
    """
    if split not in ("train", "test"):
        raise DatasetError(f"{where}: no split '{split}'; rows without splits have 'train' and 'test'.")
    some(rows, where)
    count = min(max(1, len(rows) // HELD_OUT_SHARE), HELD_OUT_MOST)
    if split == "test":
        return rows[-count:]  # type: ignore[return-value]  # a slice is of its kind
    if count == len(rows):
        raise DatasetError(
            f"{where}: the only row is held out for testing, so none is left to train on. Add rows, or give a folder "
            "with train.jsonl and test.jsonl."
        )
    return rows[:-count]  # type: ignore[return-value]


def read_files(paths: Sequence[Path]) -> StoredRows:
    """Returns the rows of files, one after the other, with their places; raises what `open_file` does."""
    return StoredRows([open_file(path) for path in paths])


def open_file(path: Path) -> Store:
    """Opens one file of rows. Raises DatasetError (missing, of an unknown kind, or broken, with the line or row);
    OSError."""
    if not path.is_file():
        raise DatasetError(
            f"no file {path}. Give a .jsonl, .json, .csv, .parquet or .arrow file, a folder with train and test, or a "
            "hub id."
        )
    if not path.name.endswith(SUFFIXES):
        raise DatasetError(
            f"{path}: a file named '*{path.suffix}' cannot be read. Use .jsonl (one JSON object per line), .json (one "
            "list of objects), .csv or .tsv (with a header line), these also compressed as .gz, .parquet or .arrow."
        )
    state = path.stat()
    return _opened(path, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=64)  # settling an environment, its train split and its test split open the same file
def _opened(path: Path, state: tuple[int, ...]) -> Store:
    kind = path.suffixes[-2] if path.suffix == ".gz" else path.suffix
    if kind in (".parquet", ".arrow"):
        return TableRows(path)
    try:
        if kind in (".csv", ".tsv"):
            return spooled(read_csv(path, "," if kind == ".csv" else "\t"), path, "line")
        if kind == ".json" and not _has_json_lines(path):
            return spooled(read_json_list(path), path, "row")
        if path.suffix != ".gz":
            with path.open("rb") as file:
                return _rows_of_lines(JsonLines(file, path), path)
        with opened(path) as packed, tempfile.TemporaryFile() as file:
            shutil.copyfileobj(packed, file)
            file.flush()
            return _rows_of_lines(JsonLines(file, path), path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: not readable as gzip: {error}. Compress the file again.") from error


def _rows_of_lines(lines: JsonLines, path: Path) -> JsonLines:
    """Raises DatasetError if the only line is broken, or is a list of rows."""
    if len(lines) == 1 and isinstance(next(lines.scan(0, 1)), list):
        raise DatasetError(
            f"{path}: its only line is a list. Write each row as one JSON object on a line of its own, or name the "
            "file *.json, which may hold one list."
        )
    return lines


def _has_json_lines(path: Path) -> bool:
    with opened(path) as file:
        if not file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            return False  # a list may be one long line
        file.seek(0)
        first = next((line for line in file if line.strip()), b"").removeprefix(b"\xef\xbb\xbf")
        if not any(line.strip() for line in file):
            return False
    try:
        json.loads(first)
    except ValueError:
        return False
    return True


def some(rows: T, where: str) -> T:
    """Returns the rows; raises DatasetError if there are none."""
    if not rows:
        raise DatasetError(f"{where}: no rows. Give a dataset with at least one row.")
    return rows
