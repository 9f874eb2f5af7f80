"""The order in which a run goes through its rows."""

from __future__ import annotations

from collections import Counter

import pytest

from grpo.core.env.order import Source, mixed_order, row_order


def test_the_order_of_rows_is_fixed_covers_all_and_repeats_nothing_before_that() -> None:
    order = row_order(7, 24, seed=3)
    assert order == row_order(7, 24, seed=3)
    assert order != row_order(7, 24, seed=4)
    assert order[:10] == row_order(7, 10, seed=3), "a longer run begins like a shorter one"
    for first in (0, 7, 14):
        assert sorted(order[first : first + 7]) == list(range(7))
    assert set(Counter(order).values()) <= {3, 4}
    assert order[:7] != order[7:14]
    assert row_order(5, 0, seed=1) == []


def test_rows_in_order_are_gone_through_once_whatever_the_length_of_the_run() -> None:
    assert row_order(6, 3, seed=1, ordered=True) == [0, 2, 4]
    assert row_order(3, 6, seed=1, ordered=True) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("shares", [(0.5, 0.5), (3, 1), (0.2, 0.3, 0.5), (1, 1, 1, 97)])
def test_every_stretch_of_a_run_has_each_environment_by_its_share(shares: tuple[float, ...]) -> None:
    order = mixed_order([Source(10, share) for share in shares], 400, seed=1)
    for end in range(1, 401):
        counts = Counter(number // 10 for number in order[:end])
        for number, share in enumerate(shares):
            assert abs(counts[number] - end * share / sum(shares)) < 1.5


def test_several_environments_keep_their_own_orders() -> None:
    sources = [Source(5, 2), Source(4, 1, ordered=True)]
    order = mixed_order(sources, 12, seed=3)
    assert [number for number in order if number < 5] == row_order(5, 8, seed=3)
    assert [number - 5 for number in order if number >= 5] == [0, 1, 2, 3]
    assert mixed_order([Source(7)], 24, seed=3) == row_order(7, 24, seed=3)
    assert mixed_order(sources, 0, seed=3) == []
