"""Warnings of what a mean reward does not show, by the metrics of whole runs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from grpo.core.monitor.health import HealthWatch
from grpo.core.monitor.trends import WINDOW, Course
from grpo.core.text.stats import mean

Row = dict[str, float | int | None]
STEPS = 40


def warnings(of: Callable[[float], Row]) -> list[str]:
    """What is said of a run whose metrics are `of` the share of it that is over."""
    noise = random.Random(0)
    watch, found = HealthWatch("float32"), []
    for step in range(1, STEPS + 1):
        row = {name: None if x is None else x * noise.uniform(0.98, 1.02) for name, x in of(step / STEPS).items()}
        found += watch.metrics({**row, "step": step})
    return found


@pytest.mark.parametrize(
    ("gain", "count"),
    [({"accuracy": 0.3, "reward": 0.5}, 1), ({"reward": 0.5}, 1)],
    ids=["known accuracy", "reward alone"],
)
def test_entropy_that_collapses_for_nothing_is_warned_of_once(gain: Row, count: int) -> None:
    said = warnings(lambda share: {**gain, "entropy": 0.8 if share < 0.4 else 0.01})
    assert len(said) == count
    assert "the entropy of the policy fell from 0." in said[0]


def test_entropy_that_falls_while_the_policy_learns_is_as_it_should_be() -> None:
    for name in ("accuracy", "reward"):

        def improving(share: float, name: str = name) -> Row:
            return {name: 0.2 + 0.7 * share, "entropy": 0.8 if share < 0.4 else 0.01}

        found = warnings(improving)
        assert found == []


def test_a_reward_that_comes_to_decide_alone_is_named() -> None:
    def taken(share: float) -> Row:
        mine = 0.3 if share < 0.4 else 0.98
        shares = {"rewards/a/b/of_differences": mine, "rewards/format/of_differences": 1 - mine}
        return {"accuracy": 0.3, "reward": 0.5, **shares}

    [said] = warnings(taken)
    assert said.startswith("reward 'a/b' makes up 9")
    assert warnings(lambda share: {**taken(share), "accuracy": 0.2 + 0.6 * share}) == []
    assert warnings(lambda share: {**taken(1.0), "accuracy": 0.3}) == [], "it always did"


def test_lowest_scores_that_become_frequent_and_are_slow_are_named() -> None:
    def loaded(share: float) -> Row:
        late = share > 0.5
        return {
            "reward": 0.5,
            "rewards/judge/lowest": 0.5 if late else 0.1,
            "time/lowest/judge": 6.0 if late else None,
        }

    [said] = warnings(loaded)
    assert said.startswith("reward 'judge' gives its lowest score to ")
    assert "times as long as others" in said
    assert warnings(lambda share: {**loaded(share), "time/lowest/judge": None}) == [], "its calls are quick"
    assert warnings(lambda share: {**loaded(share), "rewards/judge/lowest": 0.4}) == [], (
        "they were as frequent at first"
    )


def test_episodes_that_are_paid_nothing_while_their_machines_become_slow_are_named() -> None:
    def loaded(share: float) -> Row:
        late = share > 0.5
        return {
            "reward": 0.5,
            "sessions/zeros": 0.7 if late else 0.3,
            "time/sessions": 9.0 if late else 1.5,
            "time/load": 20.0 if late else 1.0,
        }

    [said] = warnings(loaded)
    assert "of the episodes with sessions are paid 0 by step" in said
    assert "per core; it was 1.0" in said
    assert warnings(lambda share: {**loaded(share), "time/sessions": 1.5}) == [], "the policy became worse"
    assert warnings(lambda share: {**loaded(share), "sessions/zeros": 0.3}) == [], "slow, and paid as before"


def test_nothing_is_said_before_the_windows_are_apart() -> None:
    watch = HealthWatch("float32")
    rows = [{"step": step, "accuracy": 0.3, "reward": 0.5, "entropy": 1.0 / step**2} for step in range(1, 2 * WINDOW)]
    assert [said for row in rows for said in watch.metrics(row)] == []


def test_a_course_knows_its_ends_and_extremes_without_what_lies_between() -> None:
    noise, course = random.Random(0), Course()
    values = [noise.gauss(0, 1) for _ in range(500)]
    for count, value in enumerate(values, start=1):
        course.add(value)
        assert (course.windows() is None) == (count < 2 * WINDOW)
        assert (course.lowest, course.highest) == (min(values[:count]), max(values[:count]))
    assert course.windows() == (mean(values[:WINDOW]), mean(values[-WINDOW:]))
    assert len(course.first) + len(course.last) == 2 * WINDOW
