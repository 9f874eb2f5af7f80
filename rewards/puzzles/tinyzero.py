"""Re-implements TinyZero's published countdown score from a description.

Unlike the published function, which calls `eval`, it parses expressions; beyond `_BITS` bits they are wrong.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from grpo.plugins._pattern import lazy_pattern

_HEADERS = ("Assistant:", "<|im_start|>assistant")
_OPEN, _CLOSE = "<answer>", "</answer>"
_ALLOWED = lazy_pattern(r"[\d+\-*/().\s]+")
_LONGEST = 10_000
_BITS = 200_000
_TOLERANCE = 1e-5

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def tinyzero_score(text: str, target: Any, numbers: Sequence[Any], *, format_score: float = 0.1) -> float:
    """Scores the last `<answer>` block on the last line after the header; 0 without header or block.

    1 when its digits are the numbers and its value is within 1e-5 of the target; else `format_score`.
    """
    equation = _equation(text)
    if equation is None:
        return 0.0
    if not _uses(equation, numbers):
        return format_score
    try:
        return 1.0 if abs(_evaluated(equation) - target) < _TOLERANCE else format_score
    except Exception:  # whatever fails there, a name, a type or a size, is a wrong expression by its rules
        return format_score


def _equation(text: str) -> str | None:
    header = next((known for known in _HEADERS if known in text), None)
    if header is None:
        return None
    line = text.partition(header)[2].rpartition("\n")[2]
    equation = None
    start = line.find(_OPEN)
    while start >= 0 and (end := line.find(_CLOSE, start)) >= 0:
        equation = line[start + len(_OPEN) : end].strip()
        start = line.find(_OPEN, end)
    return equation


def _uses(equation: str, numbers: Sequence[Any]) -> bool:
    try:
        return sorted(int(digits) for digits in re.findall(r"\d+", equation)) == sorted(numbers)
    except (ValueError, TypeError):  # more digits than Python reads; numbers that cannot be sorted
        return False


def _evaluated(equation: str) -> Any:
    """Computes what Python would; raises Exception for no expression, a too large one, or an arithmetic error."""
    if len(equation) > _LONGEST or not _ALLOWED.fullmatch(equation):
        raise ValueError("not an equation")
    return _value(ast.parse(equation, mode="eval").body)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=sign, operand=operand):
            return _OPERATORS[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=sign, right=right):
            first, second = _value(left), _value(right)
            if isinstance(sign, ast.Pow):
                return _power(first, second)
            if isinstance(sign, ast.Mult) and _bits(first) + _bits(second) > _BITS:
                raise OverflowError("too large")
            return _OPERATORS[type(sign)](first, second)
    raise TypeError("not a number")


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and _bits(base) * exponent > _BITS:
        raise OverflowError("too large")
    return base**exponent


def _bits(number: Any) -> int:
    return number.bit_length() if isinstance(number, int) else 0
