"""Defines a list of rows that knows the file and line of each row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class PlacedRows(list[dict[str, Any]]):
    """A list of rows, for messages that name the place of one.

    Args:
        placed: each row with its place, such as "rows.jsonl, line 3".

    Attributes:
        places: one for each row, in order.
    """

    def __init__(self, placed: Iterable[tuple[str, dict[str, Any]]]) -> None:
        both = list(placed)
        super().__init__(row for _, row in both)
        self.places = tuple(place for place, _ in both)
