"""Rewards of scope "group" as specs: cases of several completions, rubrics of them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo import Case, Component, RewardSpec, reward, rubric
from grpo.plugins._host.rubric_file import rubric_from_file
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins._spec.soundness import spec_fault
from grpo.plugins.errors import SpecError, UsageError


@reward(version=1, range=(0.0, 1.0), scope="group", cases=[Case(["a", "bb"], expect=[1.0, 0.0])])
def shorter(completions: list[str]) -> list[float]:
    return [float(len(text) == min(map(len, completions))) for text in completions]


@reward(version=1, range=(0.0, 1.0))
def lower(completion: str) -> float:
    return float(completion.islower())


def test_a_group_reward_is_called_like_its_function_and_knows_its_scope() -> None:
    assert shorter(["a", "bb"]) == [1.0, 0.0]
    assert (shorter.scope, lower.scope) == ("group", "completion")
    bound = BoundReward(shorter, "d")
    assert (bound.grouped, bound.together, BoundReward(lower, "d").together) == (True, True, False)


def test_a_case_may_be_a_group_with_an_expectation_for_each() -> None:
    group, alone = Case(["a", "bb"], expect=[1.0, None]), Case("a", expect=1.0)
    assert (group.several, group.texts, group.expected) == (True, ("a", "bb"), (1.0, None))
    assert (alone.several, alone.texts, alone.expected) == (False, ("a",), (1.0,))


@pytest.mark.parametrize(
    ("completion", "expect"), [(["a", "b"], [1.0]), (["a", "b"], 1.0), ("a", [1.0]), (["a"], None)]
)
def test_a_case_that_does_not_expect_one_score_for_each_is_refused(completion: Any, expect: Any) -> None:
    with pytest.raises(SpecError, match="need a list with a score, or None for an abstention, for each"):
        Case(completion, expect=expect)


def test_a_group_of_completions_is_no_case_of_a_reward_that_scores_one() -> None:
    several = Case(["a", "bb"], expect=[1.0, 0.0])
    with pytest.raises(SpecError, match="'fine': a case has several completions, but one call scores one"):
        reward(version=1, name="fine", cases=[several])(lower.function)
    assert "one call scores one" in spec_fault("reward", replace(lower, cases=(several,)))
    with pytest.raises(SpecError, match="'both': a case has several completions"):
        rubric(name="both", version=1, components=[Component(lower)], cases=[several])
    assert spec_fault("reward", shorter) == ""
    unknown: RewardSpec = replace(shorter, scope="prompt")  # type: ignore[arg-type]
    assert "scope 'prompt' must be one of completion, group" in spec_fault("reward", unknown)


def test_a_rubric_file_may_have_a_group_among_its_cases(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from grpo import reward\n\n@reward(version=1, scope='group', range=(0.0, 1.0))\n"
        "def same(completions: list[str]) -> list[float]:\n"
        "    return [float(len(set(completions)) == 1)] * len(completions)\n"
    )
    file = tmp_path / "alike.toml"
    text = '[[components]]\nreward = "./mine.py:same"\n\n[[cases]]\ncompletion = ["a", "b"]\nexpect = [0.0, 0.0]\n'
    file.write_text(text)
    [case] = rubric_from_file(file).cases
    assert (case.texts, case.expected) == (("a", "b"), (0.0, 0.0))
    file.write_text(text.replace("[0.0, 0.0]", "0.0"))
    with pytest.raises(UsageError, match=r"alike.toml: a case has 2 completions and expects 0.0"):
        rubric_from_file(file)


def test_a_nested_rubric_scores_groups_where_a_component_does() -> None:
    inner = rubric(name="inner", version=1, components=[Component(shorter), Component(lower)])
    outer = rubric(name="outer", version=1, components=[Component(inner)], combine="all")
    assert (inner.scope, outer.scope) == ("group", "group")
    assert inner(["a", "BB"]) == [2.0, 0.0]
    assert outer(["a", "BB"]) == [1.0, 0.0]
