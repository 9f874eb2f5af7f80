"""Makes the rows of one split from a function that draws a row.

A checksum of its question assigns one row in ten to the test split. So no question is in both splits, whatever the
seeds and sizes, and each is made without the other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from grpo.envs.datasets.checks import refuse_size
from grpo.envs.datasets.draws import Draws
from grpo.envs.datasets.stored import Placed
from grpo.plugins.errors import DatasetError, OptionError

HELD_OUT_SHARE = 10
_MOST_DRAWS = 200  # for one row; a row of the test split takes ten on average


def generated_split(
    draw: Callable[[Draws, float], dict[str, Any]], *, size: int, seed: int, split: str, name: str
) -> list[Placed]:
    """Returns `size` rows of a split with their places; a question may come again where there are few.

    `draw` makes a row with a column `question`, and gets the row's position in the split, from 0 to below 1. Raises
    OptionError for a bad size or seed; DatasetError for another split, or too few different questions for both.
    """
    refuse_size(size, name)
    if seed < 0:
        raise OptionError(f"{name}: data_seed={seed} must be 0 or more.")
    if split not in ("train", "test"):
        raise DatasetError(f"{name}: the embedded rows have no split '{split}'; they have 'train' and 'test'.")
    draws = Draws(f"{name} {seed} {split}")
    rows: list[Placed] = []
    for number in range(size):
        for _ in range(_MOST_DRAWS):
            row = draw(draws, number / size)
            if (zlib.crc32(row["question"].encode()) % HELD_OUT_SHARE == 0) is (split == "test"):
                break
        else:
            raise DatasetError(
                f"{name}: these options leave too few different questions for the split '{split}'. Widen them."
            )
        rows.append((f"embedded ({name}, data_seed {seed}, {split}), row {number + 1}", row))
    return rows
