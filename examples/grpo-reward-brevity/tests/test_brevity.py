"""The cases of the two plugins hold, and the score behaves between them."""

from __future__ import annotations

import pytest
from grpo_reward_brevity import brevity, within_words

from grpo import Case, Host


@pytest.mark.parametrize("case", brevity.cases, ids=lambda case: repr(case.completion))
def test_every_case_of_the_reward_holds(case: Case) -> None:
    assert isinstance(case.completion, str)
    score = brevity(case.completion, **case.row, **case.options)
    assert score == (None if case.expect is None else pytest.approx(case.expect))


@pytest.mark.parametrize("case", within_words.cases, ids=lambda case: repr(case.completion))
def test_every_case_of_the_verifier_holds(case: Case) -> None:
    assert isinstance(case.completion, str)
    assert within_words(case.completion, **case.row).ok is case.expect


def test_more_words_never_score_higher() -> None:
    scores = [score for count in range(1, 20) if (score := brevity("word " * count, limit=5)) is not None]
    assert len(scores) == 19
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 for score in scores)


def test_the_host_finds_both() -> None:
    host = Host.discover()
    assert host.reward("grpo-reward-brevity/brevity@1:limit=3,weight=0.5").options == {"limit": 3}
    assert host.verifier("grpo-reward-brevity/within_words").distribution == "grpo-reward-brevity"
