"""What a dataset function may return, and what is said of everything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from grpo import EnvSpec
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError

ROWS = [{"question": f"{n}?"} for n in range(5)]


class Table:
    """Rows by index, as those of the library `datasets`: a slice is a mapping of columns."""

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, place: Any) -> Any:
        return {"question": [row["question"] for row in ROWS[place]]} if isinstance(place, slice) else ROWS[place]


def rows_of(function: Any) -> Any:
    return BoundEnv(EnvSpec("asks", 1, gymnasium.Env, dataset=function), "dist").rows("train")


def generated(split: str) -> Iterator[dict[str, str]]:
    yield from ROWS


def test_a_table_that_is_read_by_index_is_rows_in_slices_too() -> None:
    rows = rows_of(lambda split: Table())
    assert (list(rows), list(rows[1:3]), list(rows[3:][1:]), len(rows[:2])) == (ROWS, ROWS[1:3], ROWS[4:], 2)
    assert rows_of(lambda split: ROWS) is ROWS
    assert rows_of(lambda split: []) == []


def missing(split: str) -> str:
    return Path("no such file").read_text()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda split: None, "returned None. Return a list of dicts"),
        (generated, "returned a generator. Return a list of dicts"),
        (lambda split: "rows", "returned a str"),
        (lambda split: {"train": ROWS}, "returned a dict"),
        (lambda split: [1, 2], "returned a row that is an int"),
        (
            lambda split: Path("no such file").read_text(),
            r"failed .* FileNotFoundError: .* \(at plugins/test_given_rows.py:\d+\)",
        ),
    ],
)
def test_what_is_no_rows_is_an_error_of_the_dataset(function: Any, why: str) -> None:
    with pytest.raises(DatasetError, match=f"env 'asks': the function of its rows.*{why}"):
        rows_of(function)
