"""Samplers: the decorator, what may be chosen, and how they are bound."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.plugins._spec.binding import BoundSampler
from grpo.plugins.errors import OptionError, PluginError, SpecError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.sampling import RowsSeen, Visit
from grpo.plugins.specs import SamplerSpec
from grpo.plugins.training_decorators import sampler

SEEN = RowsSeen(rows=4, count=2, step=3, taken=frozenset({1}))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (5, "returned '5', which is not a list of row numbers"),
        ([0, "2"], "which is not a list of row numbers"),
        ([0, 4], "chose row 4 of rows 0 to 3"),
        ([0, -1], "chose row -1 of rows 0 to 3"),
        ([2, 2], "chose a row twice in one step"),
        ([1, 2], "chose a row twice in one step"),
        ([2], "chose 1 rows where 2 are wanted"),
        ([0, 2, 3], "chose 3 rows where 2 are wanted"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(found: Any, said: str) -> None:
    bound = BoundSampler(SamplerSpec("mine", 1, lambda seen: found), "here")
    with pytest.raises(PluginError) as caught:
        bound.choose(SEEN)
    assert str(caught.value).startswith("sampler 'mine' of here ")
    assert said in str(caught.value)


def test_a_sampler_that_raises_is_named() -> None:
    bound = BoundSampler(SamplerSpec("mine", 1, lambda seen: [1 // 0]), "here")
    with pytest.raises(PluginError, match=r"sampler 'mine' of here raised ZeroDivisionError: .*zero"):
        bound.choose(SEEN)


def test_options_reach_the_function_and_all_that_is_left_is_enough() -> None:
    @sampler(version=1)
    def some(seen: RowsSeen, *, first: int = 0) -> list[int]:
        return [row for row in range(first, seen.rows) if row not in seen.taken][: seen.count]

    assert BoundSampler(some, "", {"first": 2}).choose(SEEN) == [2, 3]
    assert BoundSampler(some, "").choose(RowsSeen(2, 5, 1)) == [0, 1]


@pytest.mark.parametrize("source", ["lambda seen, other: []", "lambda: []", "lambda rows: []", "lambda *seen: []", "3"])
def test_a_function_of_anything_else_is_refused(source: str) -> None:
    with pytest.raises(SpecError, match=r"is given 'seen' alone|is not a function"):
        sampler(version=1, name="mine")(eval(source))


def test_the_built_in_one_is_found_and_takes_its_options() -> None:
    bound = Host.discover().sampler("curriculum:low=0.2,rest=2")
    assert (bound.name, bound.options) == ("curriculum", {"low": 0.2, "rest": 2})
    with pytest.raises(OptionError, match="no option 'lo'"):
        Host.discover().sampler("curriculum:lo=0.2")
    with pytest.raises(UsageError, match="samplers take no 'weight'"):
        Host.discover().sampler("curriculum:weight=2")


def test_the_longest_unasked_come_first_in_an_order_of_the_step() -> None:
    visits = {0: [Visit(4, 0.0, signal=False)], 1: [Visit(2, 0.0, signal=False)]}
    seen = RowsSeen(6, 2, 5, visits=visits)
    assert seen.longest_ago(range(6))[4:] == [1, 0]
    assert seen.longest_ago(range(6)) == seen.longest_ago(range(6))
    orders = {tuple(RowsSeen(6, 2, step).longest_ago(range(6))) for step in range(20)}
    assert len(orders) > 5


def test_only_a_sampler_that_says_so_may_choose_fewer_and_never_none() -> None:
    def fewer(seen: RowsSeen, *, many: int = 1) -> list[int]:
        return [row for row in range(seen.rows) if row not in seen.taken][:many]

    assert BoundSampler(sampler(version=1, fewer=True)(fewer), "").choose(SEEN) == [0]
    with pytest.raises(PluginError, match="chose 1 rows where 2 are wanted"):
        BoundSampler(sampler(version=1)(fewer), "").choose(SEEN)
    with pytest.raises(PluginError, match="chose 0 rows where 1 to 2 are wanted"):
        BoundSampler(sampler(version=1, fewer=True)(fewer), "", {"many": 0}).choose(SEEN)
