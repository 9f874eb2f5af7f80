"""The sampler chooses rows that there are, the same from the same, and lets solved ones rest."""

from __future__ import annotations

from grpo_sampler_oldest_first import oldest_first

from grpo import Host, RowsSeen, Visit, check_sampler


def test_it_keeps_what_a_sampler_promises() -> None:
    report = check_sampler(oldest_first)
    assert report.ok, str(report)


def test_solved_rows_rest_and_come_again() -> None:
    visits = {0: [Visit(1, 1.0, False)], 1: [Visit(2, 0.5, True)], 2: [Visit(3, 0.0, False)]}
    assert oldest_first(RowsSeen(3, 2, 4, visits=visits)) == [1, 2]
    assert oldest_first(RowsSeen(3, 2, 30, visits=visits)) == [0, 1]


def test_grpo_finds_it() -> None:
    assert Host.discover().sampler("grpo-sampler-oldest-first/oldest_first").spec is oldest_first
