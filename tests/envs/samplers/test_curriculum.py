"""`curriculum`: rows in the band come first, new ones beside them, and every row is seen again."""

from __future__ import annotations

from grpo.envs.samplers.curriculum import curriculum
from grpo.plugins.sampling import RowsSeen, Visit


def rated(step: int, *rates: float | None) -> list[Visit]:
    """Visits at steps that end with this one; a rate between 0 and 1 has signal."""
    first = step - len(rates) + 1
    return [Visit(first + n, rate, rate is None or 0 < rate < 1) for n, rate in enumerate(rates)]


def test_rows_in_the_band_come_before_those_that_teach_nothing() -> None:
    visits = {row: rated(2, [0.0, 0.5, 1.0][row % 3]) for row in range(12)}
    for step in range(10, 30):
        rows = curriculum(RowsSeen(12, 4, step, visits=visits), floor=0.0)
        assert {row % 3 for row in rows} == {1}


def test_a_running_rate_forgets() -> None:
    visits = {0: rated(3, 0.0, 0.0, 0.75), 1: rated(3, 0.9, 0.95, 0.99), 2: rated(3, 0.9, 0.2, 0.5)}
    assert sorted(curriculum(RowsSeen(3, 2, 20, visits=visits), floor=0.0)) == [0, 2]
    assert curriculum(RowsSeen(3, 1, 20, visits=visits), floor=0.0, low=0.4) == [2]


def test_a_row_that_was_right_once_is_tried_again_and_one_that_is_solved_is_not() -> None:
    visits = {
        0: rated(3, 0.125, 0.0),
        1: rated(3, 0.125, 0.0, 0.0),
        2: rated(3, 0.5, 1.0),
        3: rated(3, 0.0, 0.0),
        4: rated(3, 0.5, 0.0, 0.0),
    }
    assert sorted(curriculum(RowsSeen(5, 2, 20, visits=visits), floor=0.0)) == [0, 4]


def test_new_rows_get_the_share_that_they_earned() -> None:
    seen = {row: rated(1, 0.5 if row < 20 else 0.0) for row in range(40)}
    rows = curriculum(RowsSeen(200, 12, 20, visits=seen), floor=0.0)
    new = [row for row in rows if row not in seen]
    assert 4 <= len(new) <= 5  # a half of the first visits had signal: one to two, rounded up now and then
    assert all(seen[row][-1].signal for row in rows if row in seen)
    early = curriculum(RowsSeen(200, 12, 3, visits=seen), floor=0.0)
    assert not {*early} & {*seen}  # they rest


def test_the_floor_sees_every_row_again_longest_ago_first() -> None:
    visits = {row: [Visit(row + 1, 1.0, signal=False)] for row in range(20)}
    visits |= {row: rated(1, 0.5) for row in range(20, 40)}
    asked: list[int] = []
    for step in range(41, 91):
        rows = curriculum(RowsSeen(40, 4, step, visits=visits), floor=0.1)
        asked += [row for row in rows if row < 20]
        visits |= {row: rated(step, 1.0 if row < 20 else 0.5) for row in rows}
    assert asked == list(range(20))


def test_the_floor_holds_where_only_some_steps_ask_for_prompts() -> None:
    """A batch that several steps train on is asked for by the first of them alone."""
    visits = {row: [Visit(1, 1.0, signal=False)] for row in range(20)}
    visits |= {row: rated(1, 0.5) for row in range(20, 200)}
    for stride in (1, 2, 3, 4, 5, 10):
        chosen = [curriculum(RowsSeen(200, 5, 1 + stride * number, visits=visits), floor=0.1) for number in range(200)]
        outside = sum(row < 20 for rows in chosen for row in rows)
        assert 95 <= outside <= 105, stride


def test_new_rows_have_the_floor_at_least_whatever_the_size_of_a_step() -> None:
    """Many rows in the band, and first visits that seldom had signal or always: neither new nor known rows starve."""
    for count, signal in ((1, False), (4, False), (1, True), (4, True)):
        visits = {row: [Visit(1, 0.5, signal=True)] for row in range(60)}
        visits |= {row: [Visit(1, 0.0 if not signal else 0.5, signal)] for row in range(60, 1000)}
        chosen = [curriculum(RowsSeen(1500, count, step, visits=visits)) for step in range(100, 500)]
        new = sum(row not in visits for rows in chosen for row in rows)
        assert 0.07 < new / (400 * count) < 0.6, (count, signal)


def test_what_was_taken_is_not_chosen_and_all_that_is_left_is() -> None:
    visits = {row: rated(1, 0.5) for row in range(6)}
    rows = curriculum(RowsSeen(6, 4, 9, visits=visits, taken=frozenset({0, 1, 2})))
    assert sorted(rows) == [3, 4, 5]
    assert curriculum(RowsSeen(2, 3, 9, taken=frozenset({0, 1}))) == []


def test_without_a_range_of_scores_it_goes_by_signal() -> None:
    visits = {row: [Visit(1, None, row % 2 == 0)] for row in range(8)}
    assert {row % 2 for row in curriculum(RowsSeen(8, 4, 9, visits=visits), floor=0.0)} == {0}


def test_without_filling_up_a_step_asks_only_what_may_teach() -> None:
    visits = {row: rated(2, [0.0, 0.5, 1.0][row % 3]) for row in range(12)}
    for step in range(10, 30):
        rows = curriculum(RowsSeen(12, 8, step, visits=visits), fill=False)
        assert {1, 4, 7, 10} <= {*rows}
        assert len(rows) in (4, 5)  # of the others only what the floor asks again
        assert len(curriculum(RowsSeen(12, 8, step, visits=visits))) == 8


def test_without_filling_up_a_step_asks_one_row_at_least() -> None:
    visits = {row: rated(2, 1.0) for row in range(6)}
    for step in range(10, 20):
        assert len(curriculum(RowsSeen(6, 4, step, visits=visits), fill=False, floor=0.0)) == 1
