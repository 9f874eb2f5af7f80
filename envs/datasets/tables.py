"""Reads rows of Arrow tables, which stay mapped from disk: Arrow files, Parquet, data sets of the library `datasets`.

Parquet cannot be read row by row, so it becomes a temporary Arrow file, without a name, that is gone with the process.
A table adds nulls to objects for keys that they lack; these are removed from chat messages, where templates show them.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from grpo.plugins.errors import DatasetError

_ROWS = 1024  # that are made into objects at once
_SPEAKERS = ("role", "from")


class TableRows:
    """The rows of a `.parquet` or `.arrow` file. Raises DatasetError if it is damaged; OSError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _refuse_pointer(path)
        with self._named():
            self._batches = list(_parquet(path) if path.suffix == ".parquet" else _arrow(path))
        self._ends = list(accumulate(batch.num_rows for batch in self._batches))
        self._messages = message_columns(self._batches[0].schema) if self._batches else frozenset()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def place(self, index: int) -> str:
        return f"{self._path}, row {index + 1}"

    def scan(self, first: int, last: int) -> Iterator[Any]:
        """Reads rows from `first` to before `last`. Raises DatasetError: the file is damaged there."""
        while first < last:
            at = bisect_right(self._ends, first)
            begin = self._ends[at] - self._batches[at].num_rows
            until = min(last, self._ends[at], first + _ROWS)
            with self._named(first):
                rows = self._batches[at].slice(first - begin, until - first).to_pylist()
            yield from (without_added_nulls(row, self._messages) for row in rows)
            first = until

    def digest(self) -> bytes:
        with self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    @contextlib.contextmanager
    def _named(self, row: int = 0) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (pyarrow.ArrowException, ValueError, OverflowError) as error:
            kind = "Parquet" if self._path.suffix == ".parquet" else "Arrow"
            first = str(error).strip().splitlines()[0]
            raise DatasetError(
                f"{self._path}: not readable as {kind} after row {row}: {first} Write the file again."
            ) from error


class LibraryRows:
    """The rows of a `datasets.Dataset`. `name`: what stands before the number of a row in messages."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._dataset = dataset
        self._name = name
        self._messages = message_columns(dataset.features.arrow_schema)

    def __len__(self) -> int:
        return len(self._dataset)

    def place(self, index: int) -> str:
        return f"{self._name}, row {index + 1}"

    def scan(self, first: int, last: int) -> Iterator[Any]:
        """Reads rows from `first` to before `last`."""
        while first < last:
            columns = self._dataset[first : min(last, first + _ROWS)]
            for values in zip(*columns.values(), strict=True):
                yield without_added_nulls(dict(zip(columns, values, strict=True)), self._messages)
            first += _ROWS

    def digest(self) -> bytes:
        return str(self._dataset._fingerprint).encode()


def message_columns(schema: Any) -> frozenset[str]:
    """Returns the columns of a schema that are lists of chat messages."""
    import pyarrow

    def is_messages(kind: Any) -> bool:
        if not (pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)):
            return False
        inner = kind.value_type
        return pyarrow.types.is_struct(inner) and any(inner.field(i).name in _SPEAKERS for i in range(inner.num_fields))

    return frozenset(field.name for field in schema if is_messages(field.type))


def without_added_nulls(row: dict[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    """Returns a row without the nulls within these columns; a list keeps its own."""
    return {name: _filled(value) if name in columns else value for name, value in row.items()} if columns else row


def _filled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(inner) for key, inner in value.items() if inner is not None}
    return [_filled(inner) for inner in value] if isinstance(value, list) else value


def _refuse_pointer(path: Path) -> None:
    """Refuses a pointer of Git LFS: what a clone has instead of a large file that was not fetched."""
    with path.open("rb") as file:
        if file.read(40).startswith(b"version https://git-lfs"):
            raise DatasetError(f"{path} is a pointer of git-lfs and no data. Fetch the files: git lfs pull")


def _arrow(path: Path) -> Generator[Any]:
    import pyarrow

    source = pyarrow.memory_map(str(path))
    if source.read(6) == b"ARROW1":
        source.seek(0)
        file = pyarrow.ipc.open_file(source)
        yield from (file.get_batch(number) for number in range(file.num_record_batches))
        return
    source.seek(0)
    yield from pyarrow.ipc.open_stream(source)


def _parquet(path: Path) -> Generator[Any]:
    import pyarrow
    import pyarrow.parquet

    with tempfile.NamedTemporaryFile(suffix=".arrow") as copy:
        with (
            pyarrow.parquet.ParquetFile(path) as file,
            pyarrow.ipc.new_stream(copy.name, file.schema_arrow) as stream,
        ):
            for batch in file.iter_batches(batch_size=_ROWS * 16):
                stream.write_batch(batch)
        yield from _arrow(Path(copy.name))
