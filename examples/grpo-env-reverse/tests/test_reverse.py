"""The environment passes gymnasium's own check, its rows repeat, and its worked answers earn full marks."""

from __future__ import annotations

import warnings

import pytest
from grpo_env_reverse import reversal, reverse, reversed_word, rows
from gymnasium.utils.env_checker import check_env

from grpo import Case, Completion, Host, OptionError


def test_the_environment_passes_the_check_of_gymnasium() -> None:
    with warnings.catch_warnings():
        # An environment that was not made by gymnasium.make has no spec for the checker to rebuild it from.
        warnings.filterwarnings("ignore", message=".*not having a spec")
        check_env(reverse())


@pytest.mark.parametrize("case", reversal.cases, ids=lambda case: repr(case.completion))
def test_every_case_of_the_reward_holds(case: Case) -> None:
    assert isinstance(case.completion, str)
    assert reversal(case.completion, **case.row) == pytest.approx(case.expect)


@pytest.mark.parametrize("case", reversed_word.cases, ids=lambda case: repr(case.completion))
def test_every_case_of_the_verifier_holds(case: Case) -> None:
    assert isinstance(case.completion, str)
    assert reversed_word(case.completion, **case.row).ok is case.expect


def test_rows_repeat_for_one_seed_and_differ_between_splits_and_seeds() -> None:
    assert rows("train") == rows("train")
    assert rows("train") != rows("test")
    assert rows("train") != rows("train", data_seed=1)
    assert len(rows("test", size=3, syllables=4)) == 3


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(OptionError, match="syllables=0"):
        rows("train", syllables=0)


def test_worked_answers_earn_full_marks_through_the_host() -> None:
    host = Host.discover()
    env = host.env("reverse:syllables=3,size=5")
    [reward] = host.default_rewards(env)
    verifier = host.default_verifier(env)
    instance = env.make()
    assert verifier is not None
    words = env.rows("test")
    assert words
    for row in words:
        _, info = instance.reset(options={"row": row})
        completion = Completion(info["demonstration"], row=info["row"])
        assert reward.call(completion) == 1.0
        assert verifier.call(completion).ok is True
    instance.close()
