"""Rows that are given as objects become a file named by its content, the same for every form of them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo.core.run.python.rows import written_rows
from grpo.plugins.errors import UsageError

ROWS = [{"question": f"{n} + {n}?", "answer": str(2 * n), "level": n} for n in range(4)]


def frame() -> Any:
    from pandas import DataFrame

    return DataFrame(ROWS)


def data_set() -> Any:
    from datasets import Dataset

    return Dataset.from_list(ROWS)


@pytest.mark.parametrize("make", [lambda: ROWS, lambda: (dict(row) for row in ROWS), frame, data_set])
def test_every_form_of_rows_is_written_alike(make: Callable[[], Any], tmp_path: Path) -> None:
    path = Path(written_rows(make(), tmp_path / "runs").source)
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
    assert written_rows(ROWS, tmp_path / "runs").source == str(path)
    assert [file.name for file in (tmp_path / "runs").iterdir()] == [path.name]


def test_splits_become_a_folder(tmp_path: Path) -> None:
    folder = Path(written_rows({"train": ROWS[:3], "test": ROWS[3:]}, tmp_path).source)
    assert {file.name for file in folder.iterdir()} == {"train.jsonl", "test.jsonl"}
    assert json.loads((folder / "test.jsonl").read_text()) == ROWS[3]


def test_a_name_stays_one(tmp_path: Path) -> None:
    assert written_rows("openai/gsm8k", tmp_path).source == "openai/gsm8k"
    assert written_rows(Path("my.jsonl"), tmp_path).source == "my.jsonl"


def test_values_that_json_lacks_have_one_all_the_same(tmp_path: Path) -> None:
    row = {
        "a": np.int64(4),
        "b": np.array([1, 2]),
        "c": Decimal("0.5"),
        "d": datetime.date(2026, 1, 2),
        "e": float("nan"),
    }
    path = Path(written_rows([row], tmp_path).source)
    assert json.loads(path.read_text()) == {"a": 4, "b": [1, 2], "c": "0.5", "d": "2026-01-02", "e": None}


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ([], "dataset has no rows. Give a list of dictionaries, a pandas DataFrame or a datasets.Dataset"),
        ([3], "dataset, row 0 is an int; a row is a dictionary"),
        (4, "dataset is an int"),
        ({"question": ["a"]}, "a dictionary with 'question'; one for each split has 'train'"),
        ({"train": ROWS, "test": []}, r"dataset\['test'\] has no rows"),
        ([{"question": object()}], "dataset, row 0 cannot be written as JSON: it holds an object"),
    ],
)
def test_what_is_no_data_set_is_refused(dataset: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        written_rows(dataset, tmp_path)


def test_messages_name_rows_by_their_place_and_a_refused_call_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    first = written_rows(ROWS[:2], folder)
    again = written_rows(ROWS[:2], folder)
    parts = written_rows({"train": ROWS[:2], "test": ROWS[2:3]}, folder)
    assert first.named(f"{first.source}, line 2: no answer") == "dataset, row 1: no answer"
    assert parts.named(f"{parts.source}/test.jsonl, line 1: no") == "dataset['test'], row 0: no"
    again.remove()
    parts.remove()
    assert [str(path) for path in folder.iterdir()] == [first.source]
    first.remove()
    assert not folder.exists()
