"""What names several values, doubts its value or leaves it to be computed is no answer; what only says more is one."""

from __future__ import annotations

import pytest

from grpo.rewards.gsm8k.verifier import gsm8k
from grpo.rewards.math.verifier import math
from grpo.rewards.text_match import text_match

WRONG = [
    "\\boxed{71}\\text{ or maybe }\\boxed{72}",
    "\\boxed{71} \\text{ and } \\boxed{72}",
    "Final: 73, though 72 is possible.",
    "It is 71, but 72 is also likely.",
    "\\boxed{72\\%\\text{ of }50}",
    "<answer>a: 71, b: 72</answer>",
    "<answer>x: 72\ny: 71</answer>",
    "<answer>i) 71, ii) 72</answer>",
    "<answer>1. 71\n2. 72</answer>",
    "<answer>Case 1: 71. Case 2: 72.</answer>",
    "<answer>low 71, high 72</answer>",
    "<answer>72 for Tom, 71 for Ann</answer>",
    '<answer>{"a": 71, "b": 72}</answer>',
    "<answer>| a | 71 |\n| b | 72 |</answer>",
    "\\boxed{x_1 = 71, x_2 = 72}",
    "#### a: 71, b: 72",
    "Answer: Tom 71, Ann 72",
    "<answer>72 (too high)</answer>",
    "<answer>72, which is wrong</answer>",
    "<answer>72 (not 72)</answer>",
    "The answer is 72 (too high).",
    "\\boxed{72} (too high)",
    "<answer>72 plus or minus one</answer>",
    "<answer>72 +/- one</answer>",
    "<answer>72 plus tax</answer>",
    "<answer>72 squared</answer>",
    "The answer is 72 times two.",
    "<answer>f(72)</answer>",
    "<answer>log 72</answer>",
    "<answer>\\Gamma(72)</answer>",
    "<answer>72</answer><think>No wait, it is 71.</think>",
    "\\boxed{72}<think>No, that is wrong. It is 71.</think>",
    "<reflection>\\boxed{72}</reflection>71",
    "Q: How many in all? A: 71",
    "\\boxed{Not: 72}",
    "<answer>Not the answer: 72</answer>",
    "Too low: 72",
    "\\boxed{Total: 72 or 73}",
    "\\boxed{Total: 72 (48 + 25)}",
]
RIGHT = [
    "The smallest number that is possible is 72.",
    "72 is the largest possible value.",
    "<answer>April: 48, May: 24, total: 72</answer>",
    "<answer>72 clips in total, 48 in April and 24 in May</answer>",
    "<answer>72 clips (48 in April and 24 in May)</answer>",
    "Total: $72, or 7200 cents",
    "<answer>72 wrong answers</answer>",
    "<answer>72 feet squared</answer>",
    "So f(3) = 72.",
    "<answer>72</answer><think>Checking: 6*12=72, right.</think>",
    "<reflection>\\boxed{71}</reflection>72",
    "<answer>72</answer",
    "<answer>72</answe",
    "Q: What is 6*12? A: 72",
    "So 72 is the final answer.",
    "\\boxed{Total: 72}",
    "\\boxed{Total: 72 clips}",
    "\\boxed{Total: 72 (48 + 24)}",
    "\\boxed{Total cost: \\$72.00 (\\$48 + \\$24)}",
]
VALUES = [
    ("|-72|", "72"),
    ("\\left|-72\\right|", "72"),
    ("abs(-72)", "72"),
    ("-(-72)", "72"),
    ("-|72|", "-72"),
    ("\\lfloor 72.9\\rfloor", "72"),
    ("\\left\\lceil 71.2 \\right\\rceil", "72"),
]


@pytest.mark.parametrize("completion", WRONG)
def test_several_values_and_one_that_is_doubted_or_left_open_are_no_answer(completion: str) -> None:
    assert gsm8k(completion, "72").ok is False
    assert math(completion, "72").ok is False


@pytest.mark.parametrize("completion", RIGHT)
def test_one_value_with_its_parts_or_a_remark_is_an_answer(completion: str) -> None:
    assert gsm8k(completion, "72").ok is True
    assert math(completion, "72").ok is True


@pytest.mark.parametrize(("content", "value"), VALUES)
def test_bars_brackets_and_a_minus_before_them_are_evaluated(content: str, value: str) -> None:
    opposite = value.removeprefix("-") if value.startswith("-") else f"-{value}"
    assert gsm8k(f"<answer>{content}</answer>", value).ok is True
    assert gsm8k(f"<answer>{content}</answer>", opposite).ok is False
    assert math(f"\\boxed{{{content}}}", value).ok is True
    assert math(f"\\boxed{{{content}}}", opposite).ok is False


@pytest.mark.parametrize(
    ("completion", "gold", "right"),
    [
        ("y = x^2 + 1 is the answer", "y = x^2 + 1", True),
        ("y = x^2 + 1 is not the answer", "y = x^2 + 1", False),
        ("I doubt that x^2+1 is the answer", "x^2+1", False),
        ("\\(2\\sqrt3\\), which is about 3.46", "2\\sqrt{3}", True),
        ("$2\\sqrt{3}$, about 3.46", "2\\sqrt{3}", True),
        ("\\(3\\sqrt3\\), which is about 3.46", "2\\sqrt{3}", False),
        ("\\boxed{\\frac{1}{2}} (too low)", "\\frac{1}{2}", False),
    ],
)
def test_a_formula_is_stated_before_its_cue_and_beside_its_rounded_value(
    completion: str, gold: str, right: bool
) -> None:
    assert math(completion, gold).ok is right


@pytest.mark.parametrize(
    "completion",
    [
        "Paris?",
        "!Paris",
        "<answer>Paris?</answer>",
        "<answer>\u00acParis</answer>",
        "<answer>!= Paris</answer>",
        "\\boxed{\\text{Paris?}}",
        "The answer is !Paris",
        "<answer>Paris</answer>\nNo, Lyon.",
        "<answer>Paris</answer>\nActually, Lyon.",
        "<answer>Paris</answer> That is wrong.",
        "<answer>Paris</answer><think>No, it is Lyon.</think>",
        "<reflection>Paris</reflection>Lyon",
    ],
)
def test_a_text_that_asks_denies_or_takes_back_is_not_stated(completion: str) -> None:
    assert text_match(completion, "Paris") == 0.0
    assert math(completion, "Paris").ok is False


@pytest.mark.parametrize(
    "completion",
    [
        "Paris!",
        "<answer>Paris</answer\n",
        "<answer>Lyon</answer>\nNo, Paris.",
        "<answer>Paris</answer>\n\nNo other city qualifies.",
        "<answer>Paris</answer>\nCorrect? Yes.",
    ],
)
def test_a_text_that_is_stated_stays_stated(completion: str) -> None:
    assert text_match(completion, "Paris") == 1.0
