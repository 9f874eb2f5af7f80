"""Checks what datasets of every kind have: a number of rows, and columns of text."""

from __future__ import annotations

from decimal import Decimal

from grpo.plugins.errors import DatasetError, OptionError

MOST_ROWS = 1_000_000  # about 1 kB of memory each; they are made before a run begins


def refuse_size(size: int, name: str) -> None:
    """Refuses a number of rows below 1, or above what memory is meant to hold. Raises OptionError."""
    if size < 1:
        raise OptionError(f"{name}: size={size} must be 1 or more rows.")
    if size > MOST_ROWS:
        raise OptionError(
            f"{name}: size={size} rows are made and kept in memory before a run begins; {MOST_ROWS:,} is the most. "
            "Lower it: rows come again when a run has more steps."
        )


def checked_text(given: object, what: str, *, empty: bool = False, wanted: str = "text") -> str:
    """Returns text that a tokenizer can read, blank only if `empty`; else raises DatasetError, which says `wanted`."""
    if not isinstance(given, str):
        raise DatasetError(f"{what} must be {wanted}, found {kind(given)}.")
    if not empty and not given.strip():
        raise DatasetError(f"{what} is empty. Fill it in, or leave the row out.")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"{what} has a lone surrogate at character {error.start + 1}, which no tokenizer can read. Write the "
            "character as UTF-8."
        ) from error
    return given


def kind(value: object) -> str:
    """Returns what a value is, in the words of JSON."""
    names = {type(None): "null", bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number" if isinstance(value, int | float | Decimal) else type(value).__name__)
