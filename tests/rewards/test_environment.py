"""What an environment says of its rollout: its rewards put together, and whether its goal was reached."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpo.core.scoring.scorer import Scorer
from grpo.plugins.errors import OptionError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.rubric import parts
from grpo.plugins.types import Completion, Message, Scored
from grpo.rewards.environment import environment, success


def rollout(*rewards: float, **info: Any) -> Completion:
    return Completion("7", turns=max(1, len(rewards)), info={"rewards": list(rewards), **info})


@pytest.mark.parametrize(
    ("options", "expect"),
    [
        ({}, 1.75),
        ({"combine": "terminal"}, 1.0),
        ({"discount": 0.5}, 0.5 + 0.125 + 0.25),
        ({"discount": 0.0}, 0.5),
        ({"score": "letters"}, 0.4),
    ],
)
def test_rewards_of_turns_are_put_together_as_asked(options: dict[str, Any], expect: float) -> None:
    found = environment(rollout(0.5, 0.25, 1.0, scores={"letters": 0.4}), **options)
    assert (found.score if isinstance(found, Scored) else found) == pytest.approx(expect)


def test_the_score_says_what_each_turn_earned_of_it() -> None:
    found = environment(rollout(0.5, 0.25, 1.0), discount=0.5)
    assert isinstance(found, Scored)
    assert found.turns == [0.5, 0.125, 0.25]


def test_a_goal_sooner_is_worth_more_when_discounted() -> None:
    early, late = rollout(0.0, 1.0), rollout(0.0, 0.0, 0.0, 1.0)
    host = Host.discover()
    with Scorer([host.reward("environment"), host.reward("environment:discount=0.9,as=sooner")], workers=1) as scorer:
        found = scorer.score([early, late])
    assert [outcome.score for outcome in found["environment"]] == [1.0, 1.0]
    assert found["sooner"][0].score == pytest.approx(0.9)
    assert found["sooner"][1].score == pytest.approx(0.9**3)


def test_a_text_without_an_environment_is_a_failure_and_no_zero() -> None:
    host = Host.discover()
    with Scorer([host.reward("environment"), host.reward("environment:score=x,as=other")], workers=1) as scorer:
        found = scorer.score([Completion("7"), rollout(1.0)])
    assert [outcome.kind for outcome in found["environment"]] == ["failure", "score"]
    assert "reported no rewards" in str(found["environment"][0].reason)
    assert "no score 'x'" in str(found["other"][1].reason)


@pytest.mark.parametrize("options", ["discount=1.5", "combine=terminal,discount=0.9", "score=x,discount=0.5"])
def test_options_that_mean_nothing_together_are_refused(options: str) -> None:
    with pytest.raises(OptionError):
        Host.discover().reward(f"environment:{options}").prepare()


def test_the_goal_is_what_the_environment_says() -> None:
    assert [success(rollout(1.0, success=value)).ok for value in (True, False)] == [True, False]
    assert success(rollout(1.0)).ok is None
    assert success(rollout(1.0, success="yes")).ok is None


def test_a_rollout_that_a_budget_ended_missed_its_goal() -> None:
    """Also one that only called tools, so that no step said anything; but not one whose episode is over."""
    for info in ({}, {"terminated": False, "truncated": False}):
        assert success(Completion("", finish_reason="length", info={"rewards": [0.0], **info})).ok is False
    for info in ({"terminated": True}, {"truncated": True}):
        assert success(Completion("", finish_reason="length", info={"rewards": [0.0], **info})).ok is None


def test_a_reward_of_texts_reads_the_last_turn_or_all_of_them() -> None:
    said = ["<answer>1</answer>", "No. <answer>9</answer>", "It is 7."]
    roles = ("assistant", "user", "assistant")
    messages = tuple(Message(role=role, content=text) for role, text in zip(roles, said, strict=True))
    several = Completion(said[-1], messages=messages, row={"answer": "7"}, turns=2)
    single = Completion("It is 7.", row={"answer": "7"})
    host = Host.discover()
    rewards = [host.reward("proximity:as=last,weight=2"), host.reward("proximity:reads=rollout,as=all")]
    with Scorer([*rewards, host.verifier("gsm8k:reads=rollout")], workers=1) as scorer:
        scores = scorer.score([several, single])
        (judged,) = scorer.judge([several, single]).values()
    six_off = 0.1 + 0.9 / (1 + 2 * math.log2(1 + 6))
    assert [outcome.score for outcome in scores["last"]] == [1.0, 1.0]
    assert [outcome.score for outcome in scores["all"]] == [pytest.approx(six_off), 1.0], "1, and not the 9 seen"
    assert [judgement.verdict and judgement.verdict.ok for judgement in judged] == [False, True]


def test_what_is_read_is_the_same_for_all_of_a_rubric_and_refused_where_it_means_nothing() -> None:
    host = Host.discover()
    assert {part.reads for part in parts(host.reward("email:reads=rollout"))} == {"rollout"}
    assert host.lock(host.reward("format:reads=rollout"))["reads"] == "rollout"
    assert "reads" not in host.lock(host.reward("format"))
    with pytest.raises(UsageError, match="'environment' takes the whole rollout as it is"):
        host.reward("environment:reads=rollout")
    with pytest.raises(UsageError, match="envs take no 'reads'"):
        host.env("guess:reads=rollout")


def test_a_failed_rollout_is_a_failure_of_every_plugin_without_a_call() -> None:
    host = Host.discover()
    failed = Completion("", finish_reason="error", info={"failure": "env 'x' failed in turn 2", "rewards": [0.0]})
    verifier = host.verifier("environment")
    with Scorer([host.reward("environment"), host.reward("length"), verifier], workers=1) as scorer:
        scores = scorer.score([failed, rollout(1.0)])
        (judged,) = scorer.judge([rollout(1.0, success=True), failed]).values()
    assert [outcome.kind for outcome in scores["length"]] == ["failure", "score"]
    assert scores["environment"][0].reason == "env 'x' failed in turn 2"
    assert [judgement.kind for judgement in judged] == ["verdict", "failure"]
