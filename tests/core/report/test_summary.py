"""What a page says of a run whose record holds what no run writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from made_run import made_run

from grpo.core.record.list import RunLine
from grpo.core.report.report import write_report
from grpo.core.report.summary import arithmetic_of, summary_of, weights_of


def metrics_of(value: Any) -> list[Any]:
    made = summary_of("run", RunLine(Path()), {}, {}, [{"step": 1, "reward": value}], [])
    rewards: list[Any] = made["metrics"]["reward"]
    return rewards


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, 3),
        (2**53, 2**53),
        (2**60 + 1, 1.15292e18),
        (10**400, None),
        (0.1234567, 0.123457),
        (math.inf, None),
        ("1", None),
    ],
)
def test_a_number_that_no_chart_can_draw_is_none(value: Any, shown: Any) -> None:
    assert metrics_of(value) == [shown]


def test_weights_are_those_of_locks_and_numbers() -> None:
    locks = {"a": {"kind": "reward", "name": "near", "weight": 0.5}, "b": 1, "c": {"kind": "reward", "weight": "x"}}
    assert weights_of({"plugins": locks}) == {"near": 0.5}
    assert weights_of({"plugins": [1]}) == {}


@pytest.mark.parametrize("dtype", ["x", ["x"], None])
def test_a_dtype_that_nobody_knows_counts_as_the_coarsest(dtype: Any) -> None:
    assert arithmetic_of({"train": {"dtype": dtype}}) == "bfloat16"
    assert arithmetic_of({"train": {"dtype": "float32"}}) == "float32"


def test_a_run_with_a_record_of_something_else_has_a_page(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=1, train={"steps": 1, "dtype": "x"})
    run.versions.write_text(json.dumps([1]), "utf-8")
    assert write_report([run.path], tmp_path / "run.html", limit=30_000_000).held == 8
