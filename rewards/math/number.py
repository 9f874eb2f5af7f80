"""Compares an answer with a plain number; None where algebra is needed."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.answer import Statement
from grpo.rewards.math.claim import formulas, several
from grpo.rewards.numbers.adjuncts import without_parts
from grpo.rewards.numbers.answers import Answer, final_answer, gold_number, is_right, names_none
from grpo.rewards.numbers.labels import labelled
from grpo.rewards.numbers.numerals import Number, plain_text, read_number
from grpo.rewards.numbers.quantity import magnitude, unit_ratio

_TERM = lazy_pattern(r"\d\s+[abcdefijknopqrtuvwxyz]\$?\s*$")
_PRODUCT = lazy_pattern(r"\s*+(\$)?\s*+([-+]?(?:\d[\d.,]*+|\.\d++))(\s*+)([A-Za-z])\s*+\$?\s*+")
_DECIMAL_COMMA = lazy_pattern(r"\s*+\$?\s*+([-+\u2212]?\d{1,400})\{?,\}?(\d{1,400})\s*+\$?\s*+")
DIGITS_ALONE = lazy_pattern(r"-?\d{1,30}(?:\.\d{1,30})?", re.ASCII)
"""A number that is digits, a point and a minus sign at most, as most golds and most answers are."""

_FORMULA = lazy_pattern(r"[\u221a\u03c0!\u00b2\u00b3]|\d[a-zA-Z(]|[-+*/\u00d7\u00b7]\s?[\d(a-zA-Z]")
_POWERS = lazy_pattern(r"[^\W\d_]{0,20}[\d\s+*/^()=\u00d7\u00b7-]+")
_ORDINAL = lazy_pattern(r"\b\d+(?:st|nd|rd|th)\b", re.IGNORECASE)
_EQUATION = lazy_pattern(r"[^,;=\\<>!$]{1,80}(?:=[^,;=\\<>!$]{1,80}){0,2}")
_CORRECTED = lazy_pattern(r"\W*not\b", re.IGNORECASE)
_CALCULATED = lazy_pattern(r"[-+*/^\u00d7\u00b7\u00f7\\]|\d[,:]\d")
_LISTED = lazy_pattern(r"[\s\[({\\]*(?:\d+(?:\.\d+)?[\s,;]+){20,}\d[\d.]*[\s\])}\\]*")
_GROUPED = lazy_pattern(r"\s*\d{1,3}(?:(?:,\s?\d{3})+|(?:\s\d{3})+)\s*")


@lru_cache(maxsize=32)
def last_number(text: str) -> Answer | None:
    """`final_answer` with the numbers of expressions, which algebra computes; several steps ask it of one text."""
    return final_answer(text, terms=True)


def term(gold: str) -> str | None:
    """Returns a gold such as "2m" or "$2 m$" with its letter as a factor, or None when the letter may be a unit.

    A letter right behind the number, or in LaTeX, is a variable; set apart in a text ("2 m") or in `\\text{}` it is a
    unit where it can be one. A gold that is a product is not the number in it.
    """
    match = _PRODUCT.fullmatch(gold)
    if match is None or (match[3] and not match[1] and not _TERM.search(gold)):
        return None
    return f"{match[2]}{{{match[4]}}}"


def number_of(answer: object, gold: str, core: str) -> Number | None:
    """The gold as a number, unless it is a term with a variable, or several answers."""
    if _TERM.search(gold) or term(gold) is not None or several(core):
        return None
    number = gold_number(answer)
    return number if number is not None or not isinstance(answer, str) else gold_number(magnitude(gold))


def same_number(prediction: Statement, number: Number, gold: str, precision: int) -> bool | None:
    """Whether a statement is the gold number, to `precision` decimals, or None when that takes algebra to say."""
    if not prediction.parts:
        answer = last_number(prediction.text)
        if answer is None:
            return None
        left, equals, outcome = answer.text.rpartition("=")
        worked = equals and _POWERS.fullmatch(left)
        if re.search(r"[\\^_]", outcome if worked else answer.text):
            return None
        if not answer.numbers:
            return False
        outcome = _ORDINAL.sub("", outcome.replace("**", ""))
        plain = len(answer.numbers) == 1 and answer.numbers[0].factor == number.factor == 1
        if plain and not _FORMULA.search(outcome) and not formulas(answer.text):
            scale = unit_ratio(answer.text, gold) or Fraction(0)
            same = scale == 1 and is_right(answer, number)
            return same or _rounded(answer.numbers[0].value * scale, number.value, precision)
        if len(answer.numbers) == 1 and is_right(answer, number):
            return True
        percent = len(answer.numbers) == 1 and answer.numbers[0].factor < 1 == number.factor
        other = percent and number.value.denominator == 1 and not formulas(answer.text)
        return False if answer.numbers[0].restated or other else _hedged(answer)
    left, equals, right = prediction.parts[0].rpartition("=")
    if equals and _EQUATION.fullmatch(left) and read_number(right, units=True) is not None:
        return same_number(replace(prediction, parts=(right,)), number, gold, precision)
    offered = last_number(f"<answer>{prediction.parts[0]}</answer>") if len(prediction.parts) == 1 else None
    corrected = _CORRECTED.match(prediction.parts[0]) is not None
    total = labelled(plain_text(prediction.parts[0])) is not None
    twice = offered is not None and len(offered.numbers) == 1 and offered.numbers[0].restated
    if offered is not None and (corrected or twice or total or len(offered.numbers) > 1) and is_right(offered, number):
        return True
    content = without_parts(plain_text(prediction.parts[0].strip().strip("$")))
    read = (
        None
        if _TERM.search(content)
        else read_number(content, units=True) or read_number(magnitude(prediction.parts[0]))
    )
    if read is None:
        return _with_comma(prediction.parts[0], number, precision) or _hedged(
            last_number(f"<answer>{prediction.parts[0]}</answer>")
        )
    ratio = unit_ratio(prediction.parts[0], gold)
    if ratio != 1:
        return ratio is not None and ratio != 0 and _rounded(read.value * ratio, number.value, precision)
    if is_right(Answer(content, (read,), "tag"), number):
        return True
    if read.factor != 1 or number.factor != 1:
        return None
    return _rounded(read.value, number.value, precision)


def unclear(prediction: Statement) -> bool:
    """True where no number is stated though there is one ("near 72", "72 unless it is 73"), or several guesses are."""
    if prediction.parts:
        if len(prediction.parts) > 1:
            return False
        values = labelled(plain_text(prediction.parts[0]))
        return names_none(prediction.parts[0]) or (values is not None and len(values) > 1)
    answer = last_number(prediction.text)
    if answer is None or not answer.numbers:
        return answer is not None
    several = len({number.value for number in answer.numbers}) > 1 and not _thousands(answer)
    return several and _CALCULATED.search(answer.text) is None


def same_digits(content: str, core: str, number: Number, precision: int) -> tuple[bool | None, str]:
    """Compares an answer and a gold that are digits alone, as most are; `precision`: as for `same_number`.

    Returns the verdict of all the steps, and why, or "" for the same digits; None where one of the two is more.
    """
    content, core = content.strip(), core.strip()
    if DIGITS_ALONE.fullmatch(content) is None or DIGITS_ALONE.fullmatch(core) is None:
        return None, ""
    if content == core:
        return True, ""
    value = Fraction(content)
    right = value == number.value or _rounded(value, number.value, precision)
    return right, f"{'equals' if right else 'differs from'} the number {number.text}"


def is_list(content: str) -> bool:
    """True for twenty numbers and more in a row that are not the thousands of one."""
    return _LISTED.fullmatch(content) is not None and _GROUPED.fullmatch(content) is None


def _with_comma(content: str, number: Number, precision: int) -> bool | None:
    """True for the gold with a decimal comma, unless it is whole: 3,14 is 3.14, but 12,345 is not 12.345."""
    match = _DECIMAL_COMMA.fullmatch(content)
    if match is None or number.value.denominator == 1:
        return None
    value = Fraction(f"{match[1].replace(chr(0x2212), '-')}.{match[2]}") if len(match[2]) != 3 else None
    return (value is not None and (value == number.value or _rounded(value, number.value, precision))) or None


def _rounded(value: Fraction, gold: Fraction, precision: int) -> bool:
    """Compares to so many decimals, or significant digits where the gold is too small."""
    if value.denominator == 1 and gold.denominator == 1:
        return value == gold
    if abs(gold) < Fraction(10) ** (2 - precision):
        return abs(value - gold) <= abs(gold) * Fraction(10) ** (1 - precision)
    return round(value, precision) == round(gold, precision)


def _hedged(answer: Answer | None) -> bool | None:
    """False for several numbers that are no arithmetic: joined by words, commas or blanks alone."""
    if answer is None or len({number.value for number in answer.numbers}) < 2:
        return None
    return None if _thousands(answer) or re.search(r"[-+*/^=:\u00d7\u00b7\u00f7\\]|\d,\d", answer.text) else False


def _thousands(answer: Answer) -> bool:
    """True for numbers that blanks part into thousands: "1 080"."""
    groups = sorted(answer.numbers, key=lambda number: number.start)[1:]
    return all(re.fullmatch(r"\d{3}(?:\.\d+)?", number.text) for number in groups)
