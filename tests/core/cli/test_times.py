"""Times as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from grpo.core.cli.runs import day_and_time, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (74.4, "74 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (90000, "25.0 h")],
)
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_moment_of_this_year_has_its_time_and_an_older_one_its_year() -> None:
    now = datetime.now().astimezone().replace(month=11, day=5, hour=9, minute=7)
    assert day_and_time(now.isoformat()) == "Nov  5 09:07"
    assert day_and_time((now - timedelta(days=730)).isoformat())[-5:] == f" {now.year - 2}"
    assert day_and_time("") == "-"
