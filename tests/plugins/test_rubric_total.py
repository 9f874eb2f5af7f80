"""What a rubric makes of its components: abstentions, failures, gates and ranges."""

from __future__ import annotations

import math

import pytest

from grpo.plugins._spec.rubric_total import FAILED, STOPPED, Term, Value, opens, reach, total

UNIT = Term(1.0, (0.0, 1.0), 1.0)
HALF = Term(0.5, (0.0, 1.0), 1.0)
PENALTY = Term(1.0, (-1.0, 0.0), 0.0)
GATE = Term(0.5, (0.0, 1.0), 1.0, gate=True)
ENDLESS = Term(1.0, (-math.inf, math.inf), 1.0)
UNNEEDED = Term(0.0, (-math.inf, math.inf), 1.0)


def test_a_sum_is_weighted() -> None:
    assert total("sum", [UNIT, HALF, PENALTY], [0.5, 1.0, -0.25]) == 0.75
    assert total("sum", [Term(-2.0, (0.0, 1.0), 1.0), UNIT], [1.0, 1.0]) == -1.0


def test_an_abstention_in_a_sum_is_neither_a_zero_nor_a_full_score() -> None:
    assert total("sum", [UNIT, UNIT], [0.25, None]) == 0.5
    assert total("sum", [UNIT, UNIT], [1.0, None]) == 2.0
    assert total("sum", [UNIT, UNIT], [0.0, None]) == 0.0


def test_an_abstaining_penalty_counts_as_well_as_the_others_did() -> None:
    assert total("sum", [UNIT, PENALTY], [1.0, None]) == 1.0
    assert total("sum", [UNIT, PENALTY], [0.0, None]) == -1.0
    assert total("sum", [UNIT, Term(-1.0, (0.0, 1.0), 1.0)], [0.5, None]) == 0.0


@pytest.mark.parametrize("terms", [[UNIT, ENDLESS], [ENDLESS, UNIT], [UNIT, UNIT]])
def test_a_sum_abstains_where_an_abstention_cannot_be_made_up_for(terms: list[Term]) -> None:
    values: list[Value] = [None, None] if terms == [UNIT, UNIT] else [0.5, None]
    assert total("sum", terms, values) is None


def test_without_an_abstention_endless_ranges_are_simply_summed() -> None:
    assert total("sum", [UNIT, ENDLESS], [0.5, 7.0]) == 7.5


def test_the_failure_of_a_needed_component_fails_the_whole() -> None:
    assert total("sum", [UNIT, HALF], [1.0, FAILED]) is FAILED
    assert total("all", [UNIT, HALF], [1.0, FAILED]) is FAILED
    assert total("any", [UNIT, HALF], [0.0, FAILED]) is FAILED


def test_the_failure_of_an_unneeded_component_does_not() -> None:
    assert total("sum", [UNIT, UNNEEDED], [1.0, FAILED]) == 1.0
    assert total("all", [UNIT, HALF], [0.0, FAILED]) == 0.0
    assert total("any", [UNIT, HALF], [1.0, FAILED]) == 1.0


def test_a_weightless_component_changes_no_sum() -> None:
    assert total("sum", [UNIT, UNNEEDED], [0.5, 100.0]) == 0.5
    assert total("sum", [UNIT, UNNEEDED], [0.5, None]) == 0.5
    assert total("sum", [UNIT, UNNEEDED], [None, 100.0]) is None


@pytest.mark.parametrize(
    ("combine", "values", "expected"),
    [
        ("all", [1.0, 1.0], 1.0),
        ("all", [1.0, 0.9], 0.0),
        ("all", [1.0, None], 1.0),
        ("all", [0.0, None], 0.0),
        ("all", [None, None], None),
        ("any", [0.0, 1.0], 1.0),
        ("any", [0.0, 0.9], 0.0),
        ("any", [0.0, None], 0.0),
        ("any", [None, 1.0], 1.0),
        ("any", [None, None], None),
    ],
)
def test_all_and_any_leave_abstentions_out(combine: str, values: list[Value], expected: float | None) -> None:
    assert total(combine, [UNIT, UNIT], values) == expected  # type: ignore[arg-type]


def test_a_rounding_error_below_the_limit_still_passes() -> None:
    third = Term(1.0, (0.0, 0.1 + 0.2), 0.1 + 0.2)
    assert total("all", [third], [0.3]) == 1.0
    assert total("all", [third], [0.29999]) == 0.0


def test_what_a_shut_gate_stopped_counts_its_lowest() -> None:
    both_ways = Term(1.0, (-1.0, 1.0), 1.0)
    assert total("sum", [GATE, both_ways], [0.0, STOPPED]) == -1.0
    assert total("sum", [GATE, both_ways], [0.0, STOPPED]) <= total("sum", [GATE, both_ways], [1.0, -1.0])  # type: ignore[operator]
    assert total("sum", [GATE, Term(-1.0, (0.0, 2.0), 1.0)], [0.5, STOPPED]) == -1.75


def test_a_gate_that_abstains_is_open_and_one_that_failed_is_shut() -> None:
    assert opens(GATE, None)
    assert opens(GATE, 1.0)
    assert not opens(GATE, 0.5)
    assert not opens(GATE, FAILED)
    assert total("sum", [GATE, UNIT], [None, 0.5]) == 0.75
    assert total("sum", [GATE, UNIT], [FAILED, STOPPED]) is FAILED
    assert total("all", [GATE, UNIT], [FAILED, STOPPED]) is FAILED
    assert total("all", [GATE, UNIT], [0.0, STOPPED]) == 0.0


def test_no_total_leaves_the_range() -> None:
    terms = [Term(0.1, (0.0, 1.0), 1.0), Term(0.2, (-3.0, 0.7), 0.7), Term(-0.3, (0.0, 1.0), 1.0)]
    low, high = reach("sum", terms)
    for first in (0.0, 1.0, None):
        for second in (-3.0, 0.7, None):
            for third in (0.0, 1.0, None):
                found = total("sum", terms, [first, second, third])
                assert found is None or low <= found <= high  # type: ignore[operator]
    assert reach("any", terms) == (0.0, 1.0)
