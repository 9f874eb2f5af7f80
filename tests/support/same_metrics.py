"""What two runs that are to be the same have told, beside each other."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest


def assert_same_metrics(
    found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]], *, without: tuple[str, ...] = ()
) -> None:
    """Asserts that rows of metrics.jsonl agree to rounding, null with null; seconds are not compared.

    Args:
        found: rows of one run.
        expected: rows of the other.
        without: beginnings of names that are not compared either.
    """

    def compared(row: Mapping[str, Any]) -> dict[str, float]:
        return {
            name: math.nan if value is None else value
            for name, value in row.items()
            if not name.startswith(("time/", *without))
        }

    told, wanted = [compared(row) for row in found], [compared(row) for row in expected]
    assert [row.keys() for row in told] == [row.keys() for row in wanted]
    for row, other in zip(told, wanted, strict=True):
        assert row == pytest.approx(other, rel=1e-3, abs=1e-4, nan_ok=True)


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """Returns the rows of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def timeless_metrics(run: Path) -> list[dict[str, Any]]:
    """Returns the rows without wall times, which alone may differ between two equal runs."""
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in metrics_of(run)]
