"""What no reader sees, and what is crossed out, is not an answer; what is opened and never closed stays."""

import pytest

from grpo.rewards.answer_text import visible
from grpo.rewards.gsm8k.verifier import gsm8k
from grpo.rewards.math.verifier import math
from grpo.rewards.text_match import text_match

UNSTATED = [
    "<answer><!-- 72 --></answer>",
    "<!-- <answer>72</answer> -->",
    "<answer>~~72~~</answer>",
    "<answer><del>72</del></answer>",
    "<answer><p hidden>72</p></answer>",
    "<span style='display: none'><answer>72</answer></span>",
    "\\boxed{\\cancel{72}}",
    "<answer>\\sout{72}</answer>",
]


@pytest.mark.parametrize("text", UNSTATED)
def test_hidden_and_struck_answers_are_not_stated(text: str) -> None:
    assert gsm8k(text, "72").ok is False
    assert math(text, "72").ok is False
    assert text_match(text, "72") == 0.0


@pytest.mark.parametrize("text", ["<answer>~~71~~ 72</answer>", "<answer>72<!-- 48 + 24 --></answer>"])
def test_what_remains_is_the_answer(text: str) -> None:
    assert gsm8k(text, "72").ok is True
    assert math(text, "72").ok is True


@pytest.mark.parametrize("text", ["A <title> tag, and 72", "<!-- 72", "x ~~ 72 ~~ y", "<s>72</s>"])
def test_what_is_never_closed_stays(text: str) -> None:
    assert "72" in visible(text)
