"""Rows from local files.

In: a `.jsonl`, `.jsonl.gz`, `.json` (one list) or `.parquet` file, or a folder with one such file (or several
numbered ones) per split. Out: the rows of a split with the place of each, such as "rows.jsonl, line 3", read one after
another.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from grpo.plugins.errors import DatasetError

Placed = tuple[str, object]
T = TypeVar("T")

SUFFIXES = (".jsonl", ".parquet", ".jsonl.gz", ".json")
HELD_OUT_SHARE = 10
HELD_OUT_MOST = 500


def read_split(path: Path, split: str) -> list[Placed]:
    """Returns the rows of a split with their places.

    A folder has one file per split, `train.jsonl` or `train.parquet` (or numbered, `train-00000-of-00002.parquet`).
    A single file, and a folder without `test`, is divided by `held_out`.

    Raises:
        DatasetError: no such file, an unknown kind of file, a broken line, an empty split, an unknown split.
    """
    try:
        return _read_split(path, split)
    except OSError as error:
        raise DatasetError(
            f"{error.filename or path} cannot be read: {error.strerror or error}. Check the file and its rights."
        ) from error


def _read_split(path: Path, split: str) -> list[Placed]:
    if path.is_dir():
        files = _files_of(path, split)
        if files:
            rows = [placed for file in files for placed in read_file(file)]
            if split != "train" or _files_of(path, "test"):
                return _some(rows, str(files[0]))
            return held_out(rows, split, str(path))
        train = _files_of(path, "train") if split == "test" else []
        if not train:
            raise DatasetError(
                f"{path}: no rows for the split '{split}'. Put {split}.jsonl or {split}.parquet into the folder."
            )
        return held_out([placed for file in train for placed in read_file(file)], split, str(path))
    return held_out(list(read_file(path)), split, str(path))


def held_out(rows: Sequence[T], split: str, where: str) -> list[T]:
    """Divides rows that come without splits: the last tenth, at least 1 and at most 500 rows, is the test split.

    Raises:
        DatasetError: there are no rows, only one row for the split `train`, or the split has another name.
    """
    if split not in ("train", "test"):
        raise DatasetError(f"{where}: no split '{split}'; rows without splits have 'train' and 'test'.")
    rows = _some(rows, where)
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
            f"no file {path}. Give a .jsonl, .json or .parquet file, a folder with train and test, or a hub id."
        )
    if not path.name.endswith(SUFFIXES):
        raise DatasetError(
            f"{path}: a file named '*{path.suffix}' cannot be read. Use .jsonl (one JSON object per line), .jsonl.gz, "
            ".json (one list of objects) or .parquet."
        )
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
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
        raise DatasetError(f"{path}: not readable as gzip: {error}. Pack the file anew.") from error


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


def _read_parquet(path: Path) -> Iterator[Placed]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        first = str(error).strip().splitlines()[0]
        raise DatasetError(
            f"{path}: not readable as Parquet after row {number}: {first} Write the file anew."
        ) from error


def _files_of(folder: Path, split: str) -> list[Path]:
    named = [folder / f"{split}{suffix}" for suffix in SUFFIXES]
    files = [file for file in named if file.is_file()]
    files += [file for suffix in SUFFIXES for file in sorted(folder.glob(f"{split}-*{suffix}"))]
    if len(files) > 1 and (files[0] in named or len({file.suffix for file in files}) > 1):
        raise DatasetError(
            f"{folder}: several files could be the split '{split}': {', '.join(file.name for file in files)}. "
            "Keep one of them, or one numbered series."
        )
    return files


def _some(rows: Sequence[T], where: str) -> list[T]:
    if not rows:
        raise DatasetError(f"{where}: no rows. Give a dataset with at least one row.")
    return list(rows)
