"""Rows from local files.

In: a `.jsonl`, `.jsonl.gz`, `.json` (one list), `.csv`, `.tsv`, `.parquet` or `.arrow` file. Out: its rows with the
place of each, such as "rows.jsonl, line 3", read one after another; and the rule that divides rows without splits.
"""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from grpo.plugins.errors import DatasetError

Placed = tuple[str, object]
T = TypeVar("T")

SUFFIXES = (".jsonl", ".parquet", ".jsonl.gz", ".json", ".csv", ".tsv", ".arrow")
HELD_OUT_SHARE = 10
HELD_OUT_MOST = 500


def held_out(rows: Sequence[T], split: str, where: str) -> list[T]:
    """Divides rows that come without splits: the last tenth, at least 1 and at most 500 rows, is the test split.

    Raises:
        DatasetError: there are no rows, only one row for the split `train`, or the split has another name.
    """
    if split not in ("train", "test"):
        raise DatasetError(f"{where}: no split '{split}'; rows without splits have 'train' and 'test'.")
    rows = some(rows, where)
    count = min(max(1, len(rows) // HELD_OUT_SHARE), HELD_OUT_MOST)
    if split == "test":
        return list(rows[-count:])
    if count == len(rows):
        raise DatasetError(
            f"{where}: the only row is held out for testing, so none is left to train on. Add rows, or give a folder "
            "with train.jsonl and test.jsonl."
        )
    return list(rows[:-count])


def read_file(path: Path) -> Iterator[Placed]:
    """Yields the rows of one file with their places, holding one line or one batch at a time.

    Raises:
        DatasetError: the file is missing, of an unknown kind, or broken (with the line or row).
        OSError: the system refuses to read it.
    """
    if not path.is_file():
        raise DatasetError(
            f"no file {path}. Give a .jsonl, .json, .csv, .parquet or .arrow file, a folder with train and test, or a "
            "hub id."
        )
    if not path.name.endswith(SUFFIXES):
        raise DatasetError(
            f"{path}: a file named '*{path.suffix}' cannot be read. Use .jsonl (one JSON object per line), .jsonl.gz, "
            ".json (one list of objects), .csv or .tsv (with a header line), .parquet or .arrow."
        )
    if path.suffix in (".parquet", ".arrow"):
        _refuse_pointer(path)
        yield from _read_table(path)
    elif path.suffix in (".csv", ".tsv"):
        yield from _read_csv(path, "," if path.suffix == ".csv" else "\t")
    elif path.suffix == ".json":
        yield from _read_json(path)
    else:
        yield from _read_jsonl(path)


def _read_json(path: Path) -> Iterator[Placed]:
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not JSON: {error}. Write one list of objects.") from error
    if not isinstance(rows, list):
        raise DatasetError(f"{path}: holds a {type(rows).__name__}. Write one list of objects.")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _lines(path: Path) -> Generator[bytes]:
    """Yields the lines of a file, unpacked if need be."""
    if path.suffix != ".gz":
        with path.open("rb") as file:
            yield from file
        return
    import gzip
    import zlib

    try:
        with gzip.open(path) as packed:
            yield from packed
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: not readable as gzip: {error}. Compress the file again.") from error


def _read_jsonl(path: Path) -> Iterator[Placed]:
    with contextlib.closing(_lines(path)) as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if not text.strip():
                    continue
                yield where, json.loads(text)
            except UnicodeDecodeError as error:
                raise DatasetError(f"{where}: not UTF-8 at byte {error.start + 1}. Save the file as UTF-8.") from error
            except json.JSONDecodeError as error:
                raise DatasetError(
                    f"{where}: not JSON: {error.msg} at column {error.colno}. Write one JSON object per line."
                ) from error
            except (ValueError, RecursionError) as error:
                raise DatasetError(f"{where}: JSON that cannot be read: {error}. Simplify the line.") from error


def _read_csv(path: Path, delimiter: str) -> Iterator[Placed]:
    """Yields rows of texts; nothing is taken for a number or for missing, so that an answer stays what was written."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = next(reader, [])
            if len(set(names)) < len(names):
                raise DatasetError(f"{path}, line 1: two columns of one name in: {', '.join(names)}. Rename one.")
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if row and len(row) != len(names):
                    raise DatasetError(
                        f"{where}: {len(row)} fields where the first line names {len(names)} columns "
                        f"({', '.join(names)}). Put texts that hold {delimiter!r} or line ends into double quotes."
                    )
                if row:
                    yield where, dict(zip(names, row, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: not readable as a table of texts: {error}. Save it again, as UTF-8.") from error


def _refuse_pointer(path: Path) -> None:
    """Refuses what stands in a clone in the place of a large file that was not fetched."""
    with path.open("rb") as file:
        if file.read(40).startswith(b"version https://git-lfs"):
            raise DatasetError(f"{path} is a pointer of git-lfs and no data. Fetch the files: git lfs pull")


def _read_table(path: Path) -> Iterator[Placed]:
    import pyarrow

    number, kind = 0, "Parquet" if path.suffix == ".parquet" else "Arrow"
    try:
        with contextlib.closing(_batches(path)) as batches:
            for batch in batches:
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        first = str(error).strip().splitlines()[0]
        raise DatasetError(
            f"{path}: not readable as {kind} after row {number}: {first} Write the file again."
        ) from error


def _batches(path: Path) -> Generator[Any]:
    """Yields the batches of a Parquet file, or of an Arrow file or stream."""
    import pyarrow
    import pyarrow.parquet

    if path.suffix == ".parquet":
        with pyarrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=1024)
        return
    with pyarrow.OSFile(str(path)) as source:
        if source.read(6) == b"ARROW1":
            source.seek(0)
            with pyarrow.ipc.open_file(source) as file:
                yield from (file.get_batch(number) for number in range(file.num_record_batches))
            return
        source.seek(0)
        with pyarrow.ipc.open_stream(source) as stream:
            yield from stream


def some(rows: Sequence[T], where: str) -> list[T]:
    """Returns the rows as a list.

    Raises:
        DatasetError: there are none.
    """
    if not rows:
        raise DatasetError(f"{where}: no rows. Give a dataset with at least one row.")
    return list(rows)
