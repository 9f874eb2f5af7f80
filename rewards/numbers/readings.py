"""Joins two numbers that state one quantity, "72 hours, or 3 days" or "3 out of 7", into one."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.numbers.numerals import Number
from grpo.rewards.numbers.quantity import Unit, unit

_LONGEST = 60
_WORD = r"[A-Za-z]{1,20}(?:\s?(?:/|per\s)\s?[A-Za-z]{1,20})?"
_OUT_OF = lazy_pattern(r"\s+out\s+of\s+(?:a\s+total\s+of\s+|every\s+)?", re.IGNORECASE)
_FRACTION = lazy_pattern(r"\b(?:probability|chances?|odds|fraction|proportion|likelihood)\b", re.IGNORECASE)
_AGAIN = lazy_pattern(
    rf"(?P<unit>\s?{_WORD}|)(?:\s*\(|\s*,?\s*\(?(?:or|i\.e\.,?|that\s+is,?|which\s+(?:is|are|equals|means)|=)"
    r"\s+(?:(?:equal|equivalent)\s+to\s+|equivalently\s+|just\s+|exactly\s+|simply\s+|the\s+same\s+as\s+)?)[$]?",
    re.IGNORECASE,
)
_OPERAND = lazy_pattern(r"[-+*/\u00d7\u00f7\u00b7\u2013]\s*\Z")
"""Before a number that is the last of a sum, whose result the other side of "=" is."""

_AND = lazy_pattern(rf"(?P<unit>\s?{_WORD})(?:\s*,\s*|\s+)(?:and\s+)?[$]?", re.IGNORECASE)
_UNIT = lazy_pattern(rf"\s?{_WORD}")


def one_quantity(text: str, numbers: list[Number]) -> list[Number]:
    """Returns the numbers of a text with those that say one quantity twice as one number.

    Its value is the smaller reading, and its factor how many times that the other one is.
    """
    kept: list[Number] = []
    waiting = list(numbers)
    while waiting:
        number = waiting.pop(0)
        joint = text[number.end : waiting[0].start] if waiting else ""
        if not joint or len(joint) > _LONGEST:
            kept.append(number)
        elif _OUT_OF.fullmatch(joint) and number.factor == waiting[0].factor == 1 and waiting[0].value > 1:
            whole = waiting.pop(0)
            share = replace(number, value=number.value / whole.value, factor=whole.value, end=whole.end)
            kept.append(replace(share, factor=Fraction(1)) if _FRACTION.search(text, 0, number.start) else share)
        else:
            kept.append(_with_other_reading(text, number, joint, waiting))
    return kept


def _with_other_reading(text: str, number: Number, joint: str, waiting: list[Number]) -> Number:
    again = _AGAIN.fullmatch(joint)
    mine = unit(f"{number.text.strip()} {again['unit']}") if again else None
    sum_ends = "=" in joint and _OPERAND.search(text, max(0, number.start - 8), number.start)
    if mine is None or number.factor != 1 or sum_ends:
        return number
    amount, count = Fraction(0), 0
    for other, following in zip(waiting, [*waiting[1:], None], strict=True):
        theirs = _unit_of(text, other)
        if theirs is None or theirs.dimensions != mine.dimensions:
            break
        amount, count = amount + other.value * theirs.size, count + 1
        if following is None or _AND.fullmatch(text, other.end, following.start) is None:
            break
    if not amount or amount != number.value * mine.size:
        return number
    end, reading = waiting[count - 1].end, waiting[0].value if count == 1 else number.value
    del waiting[:count]
    if reading == 0 or number.value == 0:
        return replace(number, end=end)
    low, high = sorted((reading, number.value), key=abs)
    return replace(number, value=low, factor=high / low, end=end)


def _unit_of(text: str, number: Number) -> Unit | None:
    word = _UNIT.match(text, number.end)
    return unit(f"{number.text.strip()} {word[0] if word else ''}")
