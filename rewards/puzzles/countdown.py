"""Checks whether a Countdown expression uses the given numbers and reaches the target."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.decorators import reward, verifier
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Verdict
from grpo.rewards.answer_text import shortened, text_answer
from grpo.rewards.puzzles.expression import Expression, Unreadable, read_expression
from grpo.rewards.puzzles.tinyzero import tinyzero_score

Variant = Literal["exact", "tinyzero"]

_RESULT = lazy_pattern(r"-?[0-9][0-9,]*(?:\.[0-9]+)?", re.ASCII)
_LEAD = lazy_pattern(r"[^\n:=]{0,80}:\s|[^\n:=\d]{0,80}\bis\s")
_EMPHASIS = lazy_pattern(r"\*\*(?!\*)([^\n]*[^\n*])\*\*(?=\Z)")
_LONGEST = 60
_ALIASES = {"numbers": ["nums"]}
_ROW = {"target": 24, "numbers": [3, 8, 1]}
_HEADED = "Assistant: <think>8 by 3.</think> <answer>8*3*1</answer>"


@verifier(
    version=2,
    isolation="inline",
    aliases=_ALIASES,
    cases=[
        Case("<think>\n8 by 3, times 1.\n</think>\n<answer>\n8*3*1\n</answer>", _ROW, True),
        Case("<answer>(8 \u00d7 3) \u00f7 1 = 24</answer>", _ROW, True),
        Case("So it is \\boxed{8 \\times 3 \\times 1}.", _ROW, True),
        Case("<answer>8/(3-8/3)</answer>", {"target": 24, "numbers": [8, 3, 8, 3]}, True),
        Case("<answer>8*3</answer>", _ROW, False),
        Case("<answer>8*3</answer>", _ROW, True, {"use_all": False}),
        Case("<answer>8*3*1</answer>", {"target": 24, "nums": [3, 8, 1]}, True),
        Case("<answer>8*3-1</answer>", _ROW, False),
        Case("<answer>8*3*1 = 25</answer>", _ROW, False),
        Case("<answer>9**9**9</answer>", _ROW, False),
        Case("", _ROW, False),
        Case("<answer>8*3*1</answer>", {"target": "unknown", "numbers": [3, 8, 1]}, None),
    ],
)
def countdown(completion: str, target: int, numbers: list[int], *, use_all: bool = True) -> Verdict:
    """Judges whether an expression of the given numbers comes to the target, exactly.

    Read is the last `<answer>`, `<SOLUTION>` or `\\boxed{}` after the reasoning, else the last line, and what follows a
    colon in it. The expression may have + - * / and brackets, in the spellings of Python, LaTeX and Unicode, and may
    say what it comes to ("= 24"), which then must be so. Powers, decimals, anything else in the text, and more than
    400 characters are no expression. Undecided only when the row is unusable.

    Args:
        completion: the text.
        target: the number to reach.
        numbers: the numbers to use.
        use_all: each number is used exactly once; False: at most once.
    """
    return _judged(completion, target, numbers, use_all=use_all)[0]


def prepare(*, format_score: float, **_others: object) -> None:
    """Refuses options that cannot work. Raises OptionError: format_score is not from 0 to 1."""
    if not 0.0 <= format_score <= 1.0:
        raise OptionError(f"countdown: format_score={format_score} is not from 0 to 1, the range of the reward.")


@reward(
    name="countdown",
    version=2,
    as_published=["variant"],
    range=(0.0, 1.0),
    isolation="inline",
    prepare=prepare,
    aliases=_ALIASES,
    cases=[
        Case("<think>\n8*3 = 24, times 1.\n</think>\n<answer>\n8*3*1 = 24\n</answer>", _ROW, 1.0),
        Case("<answer>(8 \u00d7 3) \u00f7 1</answer>", _ROW, 1.0),
        Case("<answer>8*3-1</answer>", _ROW, 0.1),
        Case("<answer>24</answer>", _ROW, 0.1),
        Case("<answer>8*3*1 or 3*8*1</answer>", _ROW, 0.0),
        Case("<answer>9**9**9</answer>", _ROW, 0.0),
        Case("I cannot tell.", _ROW, 0.0),
        Case("<answer>8*3*1</answer>", {"target": 24, "numbers": None}, None),
        Case(_HEADED, _ROW, 1.0, {"variant": "tinyzero"}),
        Case("<answer>8*3*1</answer>", _ROW, 1.0, {"variant": "tinyzero", "header": "Assistant:"}),
        Case(_HEADED.replace("8*3*1", "8*3*1 = 24"), _ROW, 0.1, {"variant": "tinyzero"}),
        Case(_HEADED + "\n", _ROW, 0.0, {"variant": "tinyzero"}),
    ],
)
def countdown_score(
    completion: str,
    target: int,
    numbers: list[int],
    *,
    use_all: bool = True,
    format_score: float = 0.1,
    variant: Variant = "exact",
    header: str = "",
) -> float | None:
    """1 when the verifier `countdown` finds the expression right, `format_score` for any other expression, else 0.

    Args:
        completion: the text.
        target: the number to reach.
        numbers: the numbers to use.
        use_all: each number is used exactly once; False: at most once.
        format_score: for an expression that is wrong; 0 to 1.
        variant: "exact" as above, or "tinyzero": TinyZero's countdown score as published. That one reads only the
            last line after "Assistant:" (or "<|im_start|>assistant"), allows powers, whole division and decimals,
            pays `format_score` for every `<answer>` block, whatever is in it, and does not look at `use_all`.
        header: put before the completion; tinyzero scores 0 without the words that end its prompt.
    """
    if variant == "tinyzero":
        return tinyzero_score(header + completion, target, numbers, format_score=format_score)
    verdict, readable = _judged(completion, target, numbers, use_all=use_all)
    if verdict.ok is None:
        return None
    return 1.0 if verdict.ok else format_score * readable


def _judged(completion: str, target: object, numbers: object, *, use_all: bool) -> tuple[Verdict, bool]:
    goal, given = _number(target), _whole_numbers(numbers)
    if goal is None or given is None:
        return Verdict(
            None, None, "the row's target is not a number, or its numbers are no list of whole numbers"
        ), False
    stated = text_answer(completion)
    if stated is None:
        return Verdict(False, None, "the completion is blank"), False
    try:
        expression, result = _read(stated)
    except Unreadable as error:
        return Verdict(False, shortened(stated), f"no expression: {error}"), False
    fault = _numbers_fault(expression.numbers, given, use_all=use_all)
    if not fault and expression.value != goal:
        fault = f"comes to {shortened(str(expression.value))}, not {goal}"
    if not fault and result not in (None, goal):
        fault = f"comes to {goal}, and not to {result} as it says"
    return Verdict(not fault, shortened(stated), fault or f"comes to {goal}"), True


def _read(stated: str) -> tuple[Expression, Fraction | None]:
    """The expression, and the number that it is said to come to, if any. Raises Unreadable otherwise."""
    text = _EMPHASIS.sub(r"\1", stated.strip().strip("`").rstrip(".")).replace("$", "").strip()
    lead = _LEAD.match(text)
    sides = [side.strip() for side in text[lead.end() if lead else 0 :].split("=")]
    if len(sides) == 1:
        return read_expression(sides[0]), None
    if len(sides) > 2:
        raise Unreadable("more than one '='")
    for side, result in (sides, sides[::-1]):
        if _RESULT.fullmatch(result):
            return read_expression(side), _number(result.replace(",", ""))
    raise Unreadable("no number beside the '='")


def _numbers_fault(used: Iterable[int], given: Iterable[int], *, use_all: bool) -> str:
    beyond, left = Counter(used) - Counter(given), Counter(given) - Counter(used)
    if beyond:
        return f"uses a number that is not given, or too often: {_list(beyond)}"
    return f"leaves out {_list(left)}" if use_all and left else ""


def _number(value: object) -> Fraction | None:
    if isinstance(value, bool):
        return None
    try:
        text = str(value).strip()
        return Fraction(text) if len(text) <= _LONGEST and "e" not in text.lower() else None
    except (ValueError, ZeroDivisionError):
        return None


def _whole_numbers(values: object) -> list[int] | None:
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        return None
    numbers = [_number(value) for value in values]
    if not numbers or any(number is None or number.denominator != 1 for number in numbers):
        return None
    return [number.numerator for number in numbers if number is not None]


def _list(numbers: Counter[int]) -> str:
    return shortened(", ".join(str(number) for number in numbers.elements()))
