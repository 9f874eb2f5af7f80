"""Compares two answers by value, at points where they have variables, where `math_equal` runs."""

from __future__ import annotations

from typing import Any

_FEW, _MORE, MANY = 60, 200, 1000
"""Digits that tell most values apart; that factorials are computed to; and that tell 2**-2006 from zero."""

_FAR, _ROUGH = 1e-3, 0.5
_MARGIN = 4
"""The last digits may be wrong, one in so many of them; a smaller value may be a zero."""

_POINTS = ("3712897/9999991", "18234561/9999991", "-6180217/9999991", "27034519/9999991", "-14142091/9999991")
_CONSTANTS = {"i", "e", "pi"}


def same_at_points(gold: Any, answer: Any) -> bool | None:
    """Returns whether two answers are equal at sample points; None where their values cannot tell.

    `gold`: a sympy expression, or a tuple, an interval, a set or a matrix of them. False for other values at every
    point, or a variable that the gold lacks; None for other objects, rounded numbers, and differences at some points
    only.
    """
    from math_verify.grader import is_assignment_relation, unwrap_eq
    from sympy import Expr, Float, Rational, Symbol, gamma
    from sympy.functions.combinatorial.factorials import CombinatorialFunction

    if not (is_assignment_relation(gold) and is_assignment_relation(answer)):
        gold, answer = unwrap_eq(gold), unwrap_eq(answer)
    elements = _elements(gold), _elements(answer)
    if elements[0] and elements[1]:
        return _elementwise(gold, answer)
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return None
    if not gold.free_symbols and {str(symbol) for symbol in answer.free_symbols} - _CONSTANTS:
        return False
    if isinstance(gold, Symbol) or isinstance(answer, Symbol) or _computes(gold) or _computes(answer):
        return None
    gaps = _gaps(gold, answer, _FEW)
    rounded = gold.has(Float) or answer.has(Float)
    if not gaps or min(gaps) > (_ROUGH if rounded else _FAR):
        return False if gaps else None
    if max(gaps) or rounded:
        return None
    if gold.free_symbols | answer.free_symbols:
        slow = gold.has(gamma, CombinatorialFunction) or answer.has(gamma, CombinatorialFunction)
        gaps = _gaps(gold, answer, _MORE if slow else MANY)
        return True if len(gaps) == len(_POINTS) and not max(gaps) else None
    ratio = (gold / answer).doit() if answer != 0 else None
    return bool(ratio == 1) if isinstance(ratio, Rational) else _gaps(gold, answer, MANY) == [0.0]


def _elementwise(gold: Any, answer: Any) -> bool | None:
    from sympy import FiniteSet, Interval

    wanted, given = _elements(gold), _elements(answer)
    if type(gold) is not type(answer) or getattr(gold, "shape", ()) != getattr(answer, "shape", ()):
        return None
    if len(wanted) != len(given) or (isinstance(gold, Interval) and gold.args[2:] != answer.args[2:]):
        return None
    if isinstance(gold, FiniteSet):
        verdicts = [[same_at_points(element, other) for other in given] for element in wanted]
        return False if any(set(row) == {False} for row in verdicts) else None
    each = [same_at_points(element, other) for element, other in zip(wanted, given, strict=True)]
    return False if False in each else None if None in each else True


def _elements(value: Any) -> list[Any]:
    from sympy import FiniteSet, Interval, MatrixBase, Tuple

    if isinstance(value, Interval):
        return [value.start, value.end]
    return list(value) if isinstance(value, FiniteSet | MatrixBase | Tuple) else []


def _gaps(gold: Any, answer: Any, digits: int) -> list[float]:
    """Distances at the points where both are numbers, relative to the larger one; 0 within errors."""
    from sympy import Rational

    error = Rational(1, 10 ** (digits - digits // _MARGIN))
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    gaps = []
    for start in range(len(_POINTS) if symbols else 1):
        place = {
            symbol: Rational(_POINTS[(start + at) % len(_POINTS)]) + at // len(_POINTS)
            for at, symbol in enumerate(symbols)
        }
        try:
            wanted, given = (expression.evalf(digits, subs=place) for expression in (gold, answer))
            gap = abs(wanted - given) / max(abs(wanted), abs(given), error)
            gaps.append(0.0 if gap < 10 * error else max(float(gap), 1e-300))
        except (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError):
            continue
    return [gap for gap in gaps if gap == gap]


def _computes(expression: Any) -> bool:
    """True for a problem of its own at each point, percentages, and functions without a definition."""
    from sympy import Derivative, Integral, Limit, Product, Sum, UnevaluatedExpr
    from sympy.core.function import AppliedUndef

    return bool(expression.has(Derivative, Integral, Limit, Product, Sum, UnevaluatedExpr, AppliedUndef))
