"""Works out arithmetic on whole numbers exactly, from a parsed text; nothing is executed, and there are no powers."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fractions import Fraction

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.numbers.numerals import INVISIBLE

LONGEST = 400
"""Characters of the longest expression that is read."""

_SPELLINGS = (
    *((spelling, "*") for spelling in ("\u00d7", "\u00b7", "\u22c5", "\u2217", "\\times", "\\cdot")),
    *((spelling, "/") for spelling in ("\u00f7", "\u2215", "\\div")),
    *((spelling, "-") for spelling in ("\u2212", "\u2013")),
    *((spelling, "(") for spelling in ("\\left(", "\\left[")),
    *((spelling, ")") for spelling in ("\\right)", "\\right]")),
    *((spelling, "") for spelling in ("\\(", "\\)", "\\[", "\\]", "\\,", "\\ ", "\\!", "\\;")),
    ("[", "("),
    ("]", ")"),
)
_FRACTION = lazy_pattern(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_TIMES = lazy_pattern(r"(?<=[\d)])(\s*)[xX](?=\s*[\d(])")
_ALLOWED = lazy_pattern(r"[0-9+\-*/()\s]+", re.ASCII)
_FORBIDDEN = lazy_pattern(r"\*\s*\*|/\s*/")


class Unreadable(ValueError):
    """The text is no such expression; the message says why."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, worked out."""

    value: Fraction  # what it comes to
    numbers: tuple[int, ...]  # the numbers in it, in the order in which they stand


def read_expression(text: str) -> Expression:
    """Works out an expression of whole numbers, + - * / (also as signs, LaTeX and Unicode write them) and brackets.

    Raises Unreadable if it is longer than `LONGEST`, has another character or operator in it, or divides by zero.
    """
    if len(text) > LONGEST:
        raise Unreadable(f"longer than {LONGEST} characters")
    plain = " ".join(_plain(text).split())
    if not _ALLOWED.fullmatch(plain):
        raise Unreadable("not made of whole numbers, + - * / and brackets alone")
    if _FORBIDDEN.search(plain):
        raise Unreadable("powers and whole division are not among + - * /")
    try:
        tree = ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise Unreadable("no complete expression") from error
    numbers: list[int] = []
    return Expression(_value(tree, numbers), tuple(numbers))


def _plain(text: str) -> str:
    if not text.isascii():
        text = text.translate(INVISIBLE)
    for spelling, sign in _SPELLINGS:
        text = text.replace(spelling, sign)
    text = _TIMES.sub(r"\1*", text)
    while (replaced := _FRACTION.sub(r"((\1)/(\2))", text)) != text:
        text = replaced
    return text


def _value(node: ast.expr, numbers: list[int]) -> Fraction:
    match node:
        case ast.Constant(value=int() as number):
            numbers.append(number)
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, numbers)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, numbers)
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _value(left, numbers), _value(right, numbers)
            match operator:
                case ast.Add():
                    return first + second
                case ast.Sub():
                    return first - second
                case ast.Mult():
                    return first * second
                case ast.Div() if second:
                    return first / second
                case ast.Div():
                    raise Unreadable("a division by zero")
    raise Unreadable("something other than + - * / between whole numbers")
