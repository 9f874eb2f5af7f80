"""How a completion and its row become a call of the plugin's function."""

from __future__ import annotations

from typing import Any

import pytest

from grpo import Completion, reward
from grpo.plugins._spec.binding import BoundReward, MissingColumn
from grpo.plugins.errors import OptionError, PluginError


@reward(version=1)
def single(completion: str, answer: str, unit: str = "m", digits: int = 2) -> float:
    return float(len(f"{completion}{answer}{unit}") * digits)


@reward(version=1, batch=True)
def several(completions: list[str], answer: list[str], unit: list[str], digits: list[int] = [2]) -> list[Any]:  # noqa: B006
    return [f"{a}{b}{c}{d}" for a, b, c, d in zip(completions, answer, unit, digits, strict=True)]


@reward(version=1, aliases={"answer": ["solution", "gold"]})
def renamed(completion: str, answer: str) -> float:
    return float(completion == answer)


@reward(version=1)
def whole(completion: Completion) -> float:
    return float(len(completion.token_ids))


def test_an_optional_column_is_used_although_an_earlier_one_is_absent() -> None:
    row = {"answer": "7", "digits": 3}
    assert BoundReward(single, "dist").call(Completion("x", row=row)) == len("x7m") * 3


def test_rows_of_a_batch_may_differ_in_their_optional_columns() -> None:
    rows: list[dict[str, Any]] = [{"answer": "7", "unit": "m"}, {"answer": "8", "unit": "s", "digits": 3}]
    bound = BoundReward(several, "dist")
    assert bound.call_together([Completion("x", row=row) for row in rows]) == ["x7m[2]", "x8s3"]


def test_a_column_is_read_under_its_other_names_where_the_row_lacks_its_own() -> None:
    bound = BoundReward(renamed, "dist")
    assert bound.call(Completion("7", row={"gold": "7"})) == 1.0
    assert bound.call(Completion("7", row={"gold": "7", "solution": "8"})) == 0.0
    assert bound.call(Completion("7", row={"gold": "7", "answer": "8"})) == 0.0
    with pytest.raises(MissingColumn, match="needs the column 'answer' or 'solution' or 'gold'; the row has: none"):
        bound.call(Completion("7"))


def test_a_missing_column_is_named_together_with_those_that_are_there() -> None:
    with pytest.raises(MissingColumn, match="'single' needs the column 'answer'; the row has: question"):
        BoundReward(single, "dist").call(Completion("x", row={"question": "?"}))


def test_a_function_that_asks_for_a_whole_completion_gets_it() -> None:
    assert BoundReward(whole, "dist").call(Completion("x", token_ids=(1, 2, 3))) == 3.0


def test_the_alias_is_the_name() -> None:
    assert BoundReward(single, "dist").name == "single"
    assert BoundReward(single, "dist", alias="near").name == "near"


def test_a_plugin_looks_at_its_options_before_anything_is_loaded() -> None:
    seen: list[dict[str, object]] = []

    def look(**options: object) -> None:
        seen.append(options)
        if options["limit"] == 0:
            raise OptionError("limited: limit=0. Choose 1 or more.")
        if options["limit"] == 13:
            raise KeyError("oops")

    @reward(version=1, prepare=look)
    def limited(completion: str, *, limit: int, strict: bool = False) -> float:
        return float(len(completion) <= limit)

    BoundReward(limited, "dist", {"limit": 3}).prepare()
    assert seen == [{"limit": 3, "strict": False}]
    with pytest.raises(OptionError, match="limit=0"):
        BoundReward(limited, "dist", {"limit": 0}).prepare()
    with pytest.raises(PluginError, match="reward 'limited' of dist: its prepare function raised KeyError: 'oops'"):
        BoundReward(limited, "dist", {"limit": 13}).prepare()
    BoundReward(single, "dist").prepare()
