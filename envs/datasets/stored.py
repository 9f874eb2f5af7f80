"""Reads rows from disk when they are asked for, in one sequence over several files.

Memory holds only the index of where each row begins; what has been read is not kept.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, Protocol, overload

MOST_KINDS = 256  # sets of columns of which one row is remembered

Placed = tuple[str, object]


class Store(Protocol):
    """The rows of one file."""

    def __len__(self) -> int:
        """Returns the number of rows."""

    def place(self, index: int) -> str:
        """Returns where a row was written, such as "rows.jsonl, line 3"."""

    def scan(self, first: int, last: int) -> Iterator[Any]:
        """Reads rows from `first` to before `last`, one after another; raises `DatasetError` where it cannot."""

    def digest(self) -> bytes:
        """Returns a hash of what the file holds."""


class StoredRows(Sequence[Placed]):
    """Rows with their places, of one file after the other. `first`, `last`: which of all rows; default: all."""

    def __init__(self, stores: Sequence[Store], first: int = 0, last: int | None = None) -> None:
        self._stores = tuple(stores)
        self._ends = list(accumulate(len(store) for store in self._stores))
        self._first = first
        self._last = (self._ends[-1] if self._ends else 0) if last is None else last

    def __len__(self) -> int:
        return self._last - self._first

    @overload
    def __getitem__(self, index: int) -> Placed: ...

    @overload
    def __getitem__(self, index: slice) -> StoredRows: ...

    def __getitem__(self, index: int | slice) -> Placed | StoredRows:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("rows on disk are sliced without a step")
            return StoredRows(self._stores, self._first + start, self._first + max(start, stop))
        store, number = self._at(index)
        return store.place(number), next(store.scan(number, number + 1))

    def __iter__(self) -> Iterator[Placed]:
        for store, first, last in self._parts():
            for number, row in enumerate(store.scan(first, last), start=first):
                yield store.place(number), row

    def place(self, index: int) -> str:
        store, number = self._at(index)
        return store.place(number)

    def scan(self) -> Iterator[Any]:
        """Reads the rows one after another, without their places."""
        for store, first, last in self._parts():
            yield from store.scan(first, last)

    def digest(self) -> str:
        """Returns a hash of which rows these are."""
        hasher = hashlib.sha256()
        for store, first, last in self._parts():
            hasher.update(b"%d %d " % (first, last) + store.digest())
        return hasher.hexdigest()

    def _parts(self) -> Iterator[tuple[Store, int, int]]:
        for store, end in zip(self._stores, self._ends, strict=True):
            begin = end - len(store)
            first, last = max(self._first, begin), min(self._last, end)
            if first < last:
                yield store, first - begin, last - begin

    def _at(self, index: int) -> tuple[Store, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        number = self._first + index % len(self)
        at = bisect_right(self._ends, number)
        return self._stores[at], number - (self._ends[at] - len(self._stores[at]))


class ReadRows(Sequence[dict[str, Any]]):
    """The rows of a split as rewards read them, each made by `read` from a row and its place when it is asked for.

    `sizes`: characters of each row's prompt. `asked`: equal for rows that ask the same, in this process. `kinds`:
    numbers of rows that between them have every set of columns.
    """

    def __init__(
        self,
        placed: StoredRows,
        read: Callable[[Any, str], dict[str, Any]],
        sizes: Sequence[int],
        asked: Sequence[int],
        kinds: Sequence[int],
    ) -> None:
        self._placed = placed
        self._read = read
        self.sizes = sizes
        self.asked = asked
        self.kinds = kinds
        self.places = Places(placed)

    def __len__(self) -> int:
        return len(self._placed)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> ReadRows: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | ReadRows:
        if isinstance(index, slice):
            numbers = range(len(self))[index]
            kinds = [kind - numbers.start for kind in self.kinds if kind in numbers]
            return ReadRows(self._placed[index], self._read, self.sizes[index], self.asked[index], kinds)
        place, row = self._placed[index]
        return self._read(row, place)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for place, row in self._placed:
            yield self._read(row, place)

    def digest(self) -> str:
        """Returns a hash of which rows these are, as they were written."""
        return self._placed.digest()


def checked_rows(
    placed: StoredRows,
    read: Callable[[Any, str], dict[str, Any]],
    asks: Callable[[dict[str, Any]], str] = itemgetter("question"),
) -> ReadRows:
    """Has `read` check every row once; returns rows that stay on disk. `asks`: returns a row's question."""
    sizes, asked, kinds = array("q"), array("q"), dict[tuple[str, ...], int]()
    for index, (where, row) in enumerate(placed):
        made = read(row, where)
        question = asks(made)
        sizes.append(len(question))
        asked.append(hash(question))
        if len(kinds) < MOST_KINDS:
            kinds.setdefault(tuple(made), index)
    return ReadRows(placed, read, sizes, asked, tuple(kinds.values()))


class Places:
    """Where rows were written, made when they are asked for."""

    def __init__(self, placed: StoredRows) -> None:
        self._placed = placed

    def __getitem__(self, index: int) -> str:
        return self._placed.place(index)
