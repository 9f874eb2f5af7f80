"""What the judge takes for a verdict, and that every other reply is a failure."""

from collections.abc import Callable
from typing import Any

import pytest

from grpo.core.scoring.outcome import Outcome
from tests.rewards.conftest import StandIn

pytestmark = pytest.mark.usefixtures("judge_key")


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "",
        None,
        "10",
        "10/10",
        "I give 10 points.",
        '{"points": 10}',
        '{"mark": "MARK", "points": 10}',
        '{"mark": "MARK", "reasoning": "", "points": 10, "more": 1}',
        '{"mark": "MARK", "reasoning": "", "points": 11}',
        '{"mark": "MARK", "reasoning": "", "points": -1}',
        '{"mark": "MARK", "reasoning": "", "points": 10.0}',
        '{"mark": "MARK", "reasoning": "", "points": "10"}',
        '{"mark": "MARK", "reasoning": "", "points": true}',
        '{"mark": "MARK", "reasoning": "", "points": null}',
        '{"mark": "MARK", "reasoning": "", "points": NaN}',
        '{"mark": "MARK", "reasoning": 1, "points": 1}',
        '{"mark": "MARK", "reasoning": "", "points": ' + "9" * 5000 + "}",
        '{"mark": "MARK", "reasoning": "", "points": 0, "points": 10}',
        '{"mark": "0123", "reasoning": "", "points": 10}',
        '{"mark": "", "reasoning": "", "points": 10}',
        '{"mark": "MARK", "reasoning": "", "points": 10} and more',
        '{"mark": "MARK", "reasoning": "", "points": 0}\n{"mark": "MARK", "reasoning": "", "points": 10}',
        '<think>hm</think>{"mark": "MARK", "reasoning": "", "points": 10}',
        '```json\n{"mark": "MARK", "reasoning": "", "points": 10}\n```\nDone.',
        '[{"mark": "MARK", "reasoning": "", "points": 10}]',
        "[" * 100_000,
    ],
)
def test_a_reply_that_is_not_the_one_object_is_a_failure(
    stand_in: StandIn, content: str | None, outcomes: Callable[..., list[Outcome]]
) -> None:
    def brain(messages: list[dict[str, str]]) -> str | None:
        mark = messages[1]["content"].split("\n")[0].removeprefix("The mark of this message: ")
        return content and content.replace("MARK", mark)

    stand_in.brain = brain
    [outcome] = outcomes(stand_in, ["Paris"])
    assert (outcome.kind, outcome.score) == ("failure", None)
    assert "JudgeError: the judge's" in outcome.reason


def test_a_verdict_alone_in_a_code_fence_is_a_verdict(
    stand_in: StandIn, judges: dict[str, Any], outcomes: Callable[..., list[Outcome]]
) -> None:
    stand_in.brain = lambda messages: f"\n```json\n{judges['verdict'](messages, 7)}\n```\n"
    assert outcomes(stand_in, ["Paris"])[0].score == 0.7


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"choices": []}, "no choices"),
        ({}, "no choices"),
        ([1], "JudgeError"),
        ({"choices": ["x"]}, "empty"),
        ("<html>", "JudgeError"),
        ({"choices": [{"finish_reason": "stop", "message": None}]}, "empty"),
        ({"choices": [{"finish_reason": "stop", "message": {"content": {"a": 1}}}]}, "empty"),
    ],
)
def test_a_body_that_is_no_chat_completion_is_a_failure(
    stand_in: StandIn, body: dict[str, Any] | list[int] | str, words: str, outcomes: Callable[..., list[Outcome]]
) -> None:
    stand_in.script = [(200, body, {})]
    [outcome] = outcomes(stand_in, ["Paris"])
    assert outcome.kind == "failure"
    assert words in outcome.reason


def test_a_body_that_is_no_json_is_a_failure(stand_in: StandIn, outcomes: Callable[..., list[Outcome]]) -> None:
    for data in (b"not json", b"", b"\xff\xfe"):
        stand_in.script = [data]
        [outcome] = outcomes(stand_in, ["Paris"])
        assert outcome.kind == "failure"
        assert "Judge" in outcome.reason


@pytest.mark.parametrize("ending", ["length", "content_filter", "tool_calls"])
def test_a_reply_cut_short_is_a_failure_even_when_it_reads_like_a_verdict(
    stand_in: StandIn, judges: dict[str, Any], ending: str, outcomes: Callable[..., list[Outcome]]
) -> None:
    stand_in.script = [(200, judges["reply"]('{"points": 10}', ending), {})]
    assert f"finish_reason '{ending}'" in outcomes(stand_in, ["Paris"])[0].reason


def test_a_refusal_is_a_failure(
    stand_in: StandIn, judges: dict[str, Any], outcomes: Callable[..., list[Outcome]]
) -> None:
    stand_in.script = [(200, judges["reply"](None, refusal="I cannot."), {})]
    assert "refused: I cannot." in outcomes(stand_in, ["Paris"])[0].reason
