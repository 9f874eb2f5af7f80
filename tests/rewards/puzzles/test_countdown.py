"""Countdown: expressions read in any usual spelling, judged exactly, never executed."""

import random
from fractions import Fraction
from typing import Any

import pytest
from patience import little_work

from grpo.rewards.puzzles.countdown import countdown, countdown_score
from grpo.rewards.puzzles.expression import LONGEST, Unreadable, read_expression
from grpo.rewards.puzzles.tinyzero import tinyzero_score

NUMBERS = [3, 8, 1]
HOSTILE = [
    "9**9**9",
    "9**9**9**9*0",
    "(" * 199 + "8" + ")" * 199,
    "(" * 5000 + "8" + ")" * 5000,
    "-" * 5000 + "8",
    "~" * 300 + "8",
    "8" + "*8" * 5000,
    "8" * 100_000,
    "1/" * 190 + "3",
    "9//1" * 80,
    "__import__('os').system('true')",
    "().__class__.__bases__[0].__subclasses__()",
    "[x for x in (1).__class__.__mro__]",
    "lambda: 8",
    "8if 3else 1",
    "0x8*3*1",
    "8_0*3*1",
    "8j*3*1",
    "1e400",
    "8*3*1\x00",
    "\ud800",
    "\\frac{8}{" * 40 + "3" + "}" * 40,
    "exec('8')",
]


@pytest.mark.parametrize(
    ("text", "value", "numbers"),
    [
        ("8*3*1", 24, (8, 3, 1)),
        ("(8 + 3) / 2", Fraction(11, 2), (8, 3, 2)),
        ("8 \u00d7 3 \u00f7 1", 24, (8, 3, 1)),
        ("8 \\times 3 \\cdot 1", 24, (8, 3, 1)),
        ("\\left(8 - 3\\right) \\div 1", 5, (8, 3, 1)),
        ("\\dfrac{\\frac{8}{3}}{1}", Fraction(8, 3), (8, 3, 1)),
        ("\\(8 * 3\\)", 24, (8, 3)),
        ("[8 - (3 + 1)] * 2", 8, (8, 3, 1, 2)),
        ("8 \u2212 3 \u2013 1", 4, (8, 3, 1)),
        ("-8 + +3", -5, (8, 3)),
        ("8 *\n3", 24, (8, 3)),
    ],
)
def test_usual_spellings_are_worked_out(text: str, value: Fraction | int, numbers: tuple[int, ...]) -> None:
    expression = read_expression(text)
    assert (expression.value, expression.numbers) == (value, numbers)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "whole numbers"),
        ("eight", "whole numbers"),
        ("8.0*3", "whole numbers"),
        ("8,3", "whole numbers"),
        ("8 = 8", "whole numbers"),
        ("8**3", "powers"),
        ("8* *3", "powers"),
        ("8//3", "whole division"),
        ("8*", "complete"),
        ("8 3", "complete"),
        ("08*3", "complete"),
        ("8/(3-3)", "division by zero"),
        ("2(3)", "something other"),
        ("()", "something other"),
        ("*8", "complete"),
        ("\uff18*3", "whole numbers"),
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read_expression(text)


def test_the_longest_expression_is_read_and_the_next_is_not() -> None:
    text = "1+" * (LONGEST // 2 - 1) + "12"
    assert len(text) == LONGEST
    assert read_expression(text).value == LONGEST // 2 - 1 + 12
    with pytest.raises(Unreadable, match="longer than"):
        read_expression(text + "0")


def test_values_agree_with_python_on_random_expressions() -> None:
    pick, zeros = random.Random(7), []

    def grow(depth: int) -> str:
        if depth == 0 or pick.random() < 0.2:
            return str(pick.randrange(1, 100))
        return f"({grow(depth - 1)} {pick.choice('+-*/')} {grow(depth - 1)})"

    for _ in range(500):
        text = grow(4)
        try:
            expected = eval(text)
            value = read_expression(text).value
        except (ZeroDivisionError, Unreadable):
            zeros.append(text)
            continue
        assert float(value) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert len(zeros) < 50


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("frame", ["{}", "<answer>{}</answer>", "Assistant: <answer>{}</answer>", "\\boxed{{{}}}"])
def test_hostile_texts_are_wrong_and_take_no_time(text: str, frame: str) -> None:
    completion = frame.format(text)
    with little_work(completion[:60]):
        assert countdown(completion, 24, NUMBERS).ok is False
        assert countdown_score(completion, 24, NUMBERS) in (0.0, 0.1)
        assert countdown_score(completion, 24, NUMBERS, variant="tinyzero") in (0.0, 0.1)
        assert countdown_score(completion, 24, [9, 9, 9], variant="tinyzero") in (0.0, 0.1)


@pytest.mark.parametrize(
    "stated",
    [
        "8*3*1",
        "8*3*1.",
        "8*3*1 = 24",
        "24 = 8*3*1",
        "$8 \\times 3 \\times 1 = 24$",
        "`(8*3)*1`",
        "The answer is: 8*3*1",
        "The answer is 8*3*1.",
        "**8*3*1 = 24**",
        "8 x 3 x 1 = 24",
        "(8 x 3)x1",
        "8*3*1 = 24.0",
        "(8) * [(3) * 1]",
    ],
)
def test_right_expressions_are_right_in_every_form(stated: str) -> None:
    for text in (f"<answer>{stated}</answer>", f"<think>8-1\n</think>\n<answer>{stated}", f"Easy.\n{stated}"):
        assert countdown(text, 24, NUMBERS).ok is True, text
        assert countdown_score(text, 24, NUMBERS) == 1.0


@pytest.mark.parametrize(
    ("stated", "reason", "score"),
    [
        ("8*3", "leaves out 1", 0.1),
        ("8*3*1*1", "too often: 1", 0.1),
        ("8*3-1+2", "not given, or too often: 2", 0.1),
        ("24", "not given, or too often: 24", 0.1),
        ("8+3+1", "comes to 12, not 24", 0.1),
        ("8*3*1 = 25", "not to 25 as it says", 0.1),
        ("8*3*1 = 24 = 24", "more than one '='", 0.0),
        ("8*3*1 = 3*8*1", "no number beside", 0.0),
        ("8*3*1 or 8+3+1", "no expression", 0.0),
        ("8**3**1", "powers", 0.0),
        ("**8**3**1**", "powers", 0.0),
        ("8 + 16 is 8*3*1", "no expression", 0.0),
    ],
)
def test_wrong_answers_say_why(stated: str, reason: str, score: float) -> None:
    verdict = countdown(f"<answer>{stated}</answer>", 24, NUMBERS)
    assert verdict.ok is False
    assert reason in verdict.reason
    assert countdown_score(f"<answer>{stated}</answer>", 24, NUMBERS) == score


def test_fractions_in_between_are_exact() -> None:
    assert countdown("<answer>8/(3-8/3)</answer>", 24, [3, 3, 8, 8]).ok is True
    assert countdown("<answer>1/3+1/3+1/3</answer>", 1, [1, 1, 1, 3, 3, 3]).ok is True


def test_the_last_expression_after_the_reasoning_counts() -> None:
    text = "<think><answer>8*3*1</answer></think><answer>8+3</answer><answer>8*3*1</answer>"
    assert countdown(text, 24, NUMBERS).ok is True
    assert countdown(text + "<answer>8+3+1</answer>", 24, NUMBERS).ok is False


@pytest.mark.parametrize(
    ("target", "numbers"),
    [
        (None, NUMBERS),
        ("many", NUMBERS),
        (True, NUMBERS),
        (24, None),
        (24, "381"),
        (24, []),
        (24, [3, 8.5]),
        (24, [None]),
    ],
)
def test_an_unusable_row_is_undecided(target: Any, numbers: Any) -> None:
    verdict = countdown("<answer>8*3*1</answer>", target, numbers)
    assert verdict.ok is None
    assert verdict.reason
    assert countdown_score("<answer>8*3*1</answer>", target, numbers) is None


def test_targets_and_numbers_may_be_texts_and_floats() -> None:
    rows: list[tuple[str, Any, Any, bool | None]] = [
        ("8*3*1", "24", ["3", 8.0, 1], True),
        ("1/4", "1/4", [1, 4], True),
        ("8*3*1", "9" * 5000, NUMBERS, None),
    ]
    for expression, target, numbers, expected in rows:
        assert countdown(f"<answer>{expression}</answer>", target, numbers).ok is expected


@pytest.mark.parametrize(
    ("equation", "numbers", "target", "score"),
    [
        ("2**3", [2, 3], 8, 1.0),
        ("7//2", [7, 2], 3, 1.0),
        ("1.5+1", [1, 5, 1], 2.5, 1.0),
        ("8(3)", [8, 3], 24, 0.1),
        ("()", [], 0, 0.1),
        ("8*3", [3, 8], "24", 0.1),
        ("2**-1", [2, 1], 0.5, 1.0),
        ("0**(0-1)", [0, 0, 1], 0, 0.1),
        ("(0-8)**.5", [0, 8, 5], 0, 0.1),
        ("99**99**99", [99, 99, 99], 1, 0.1),
        ("99**99-99**99+1", [99, 99, 99, 99, 1], 1, 1.0),
        ("03*8", [3, 8], 24, 0.1),
        ("8*3\u00a0", [3, 8], 24, 1.0),
    ],
)
def test_the_published_score_works_out_what_python_would(
    equation: str, numbers: list[int], target: float | str, score: float
) -> None:
    assert tinyzero_score(f"Assistant: <answer>{equation}</answer>", target, numbers) == score


def test_the_header_stands_in_for_the_prompt() -> None:
    for header in ("Assistant:", "<|im_start|>assistant\n"):
        assert countdown_score("<answer>8*3*1</answer>", 24, NUMBERS, variant="tinyzero", header=header) == 1.0
    assert countdown_score("<answer>8*3*1</answer>", 24, NUMBERS, variant="tinyzero") == 0.0
