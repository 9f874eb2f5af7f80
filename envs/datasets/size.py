"""Refuses an option `size` that is too small or too large."""

from __future__ import annotations

from grpo.plugins.errors import OptionError

MOST_ROWS = 1_000_000  # about 1 kB of memory each; they are made before a run begins


def refuse_size(size: int, name: str) -> None:
    """Refuses a number of rows that cannot be made.

    Raises OptionError: below 1, or more than memory is meant to hold.
    """
    if size < 1:
        raise OptionError(f"{name}: size={size} must be 1 or more rows.")
    if size > MOST_ROWS:
        raise OptionError(
            f"{name}: size={size} rows are made and kept in memory before a run begins; {MOST_ROWS:,} is the most. "
            "Lower it: rows come again when a run has more steps."
        )
