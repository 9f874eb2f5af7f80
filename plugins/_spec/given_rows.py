"""Reads what an environment's dataset function returned as a sequence of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo.plugins.errors import DatasetError, with_article

_HINT = "Return a list of dicts, one for each row."


class IndexedRows(Sequence[Mapping[str, Any]]):
    """Rows of an object that is read by index and is no sequence: its slices may be columns, as those of `datasets`."""

    def __init__(self, source: Any, numbers: range) -> None:
        self._source = source
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return IndexedRows(self._source, self._numbers[place])
        return self._source[self._numbers[place]]


def given_rows(env: str, split: str, given: Any) -> Sequence[Mapping[str, Any]]:
    """Returns the rows that the dataset function of an environment returned for a split.

    Raises DatasetError: they are no sequence, or the first one is no mapping.
    """
    where = f"env '{env}': the function of its rows, for the split '{split}',"
    if isinstance(given, str | bytes | Mapping) or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        kind = "None" if given is None else with_article(type(given).__name__)
        raise DatasetError(f"{where} returned {kind}. {_HINT}")
    rows = given if isinstance(given, Sequence) else IndexedRows(given, range(len(given)))
    if len(rows) == 0:
        return rows
    try:
        first = rows[0]
    except (KeyError, IndexError, TypeError):  # a table, or a table of splits
        raise DatasetError(f"{where} returned {with_article(type(given).__name__)}, not rows. {_HINT}") from None
    if not isinstance(first, Mapping):
        raise DatasetError(f"{where} returned a row that is {with_article(type(first).__name__)}. {_HINT}")
    return rows
