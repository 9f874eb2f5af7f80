"""Decides whether two answers are the same set of real numbers; None for anything else.

`x > 3`, `(3, \\infty)`, `x \\in (3, \\infty)` and `\\{x \\mid x > 3\\}` are one set; so are `x < 0 or x > 1` and
`(-\\infty, 0) \\cup (1, \\infty)`. It runs where `math_equal` runs, which has the time limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

_SETLIKE = re.compile(
    r"[<>\u2264\u2265\u2260\u222a\u211d]|\\(?:leq?|geq?|lt|gt|neq?|leqslant|geqslant|cup|cap|setminus|backslash|infty|"
    r"mathbb|notin|emptyset|varnothing)(?![a-z])|[\[(](?=[^\[\]()]*,)[^\[\]()]+[\])]"
)
_RELATION = re.compile(r"[<>\u2264\u2265\u2260]|!=|\\(?:leq?|geq?|lt|gt|neq?|leqslant|geqslant)(?![a-zA-Z])")
_BUILDER = re.compile(
    r"(?:\\left\s?)?\\\{\s*([a-zA-Z])\s*(?:\\in\s*(?:\\mathbb\s?\{?R\}?|\\R(?![a-z]))\s*)?"
    r"(?:\\(?:mid|vert|colon|middle\s?\|)(?![a-z])|[|:])\s*(.+?)\s*(?:\\right\s?)?\\\}"
)
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w{1,3}\}?)?\s*=\s*(?=(?:\\left\s?)?(?:[\[(]|\\\{))")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textrm)\s?\{([^{}]*)\}")
_BLANK = re.compile(r"\\(?:q?quad(?![a-z])|[ ,;:!])")
_OR = re.compile(r"\bor\b|\\(?:lor|vee)(?![a-z])")
_AND = re.compile(r"\band\b|\\(?:land|wedge)(?![a-z])")
_UNEQUAL = re.compile(r"\\neq?(?![a-z])|\u2260|!=")
_REALS = re.compile(r"[a-zA-Z]\s*\\in\s*(?:\\mathbb\s?\{?R\}?|\\R(?![a-z]))")
_SUCH_THAT = re.compile(
    r"\A\s*(?=[a-zA-Z\\])(?:for\s+)?(?:(?:all|every|any)\b\s*|\\forall\s*)?(?:reals?\b\s*(?:numbers?\b\s*)?)?"
    r"(?:[a-zA-Z](?![a-zA-Z])\s*(?:\\in\s*(?:\\mathbb\s?\{?R\}?|\\R(?![a-z])))?\s*)?"
    r"(?::|\||\\mid(?![a-z])|,|\b(?:with|where|such\s+that|for\s+which|satisfying)\b)\s*"
)
_ALL = re.compile(r"\A\s*(?:for\s+)?(?:(?:all|every|any)\b|\\forall(?![a-z]))\s*(?=[a-zA-Z](?![a-zA-Z]))")
_SIDE = re.compile(
    r"(?:\\mathbb\s?\{?R\}?|\\R(?![a-z])|\u211d)\s*[_^]\s*\{?\s*(?:(?P<sign>[+*-])|(?P<relation>[<>]=?|\\(?:leq?|geq?|lt|gt)(?:slant)?)\s*0)\s*\}?"
)
_LEFT_OUT = re.compile(
    r"(\\mathbb\s?\{?R\}?|\\R(?![a-z])|\u211d)\s*(?:-|\\backslash(?![a-z]))\s*(?=(?:\\left\s?)?\\\{)"
)
_SIDES = {"+": r"(0,\infty)", "-": r"(-\infty,0)", "*": r"(-\infty,0) \cup (0,\infty)"}
_MOST_OPERATIONS = 60


@dataclass(frozen=True, slots=True)
class _Reading:
    points: Any  # the set
    variable: str  # the letter it was written with, or ""
    relation: bool = False  # it was written with an inequality
    # on one side of every inequality stands the variable alone, so that it is no problem left to solve
    solved: bool = True


def same_set(gold: str, text: str, read: Callable[[str], Sequence[Any]], *, relations: bool) -> bool | None:
    """Compares two sets of real numbers; `read`: reads LaTeX as a list of sympy objects and texts.

    `relations`: an inequality may answer a gold written as a set. Returns None when one is no set of real numbers in
    one variable, or neither is written as one.
    """
    if not (_SETLIKE.search(gold) and _SETLIKE.search(text)):
        return None
    wanted = _reading(gold, read)
    given = _reading(text, read) if wanted is not None else None
    if wanted is None or given is None:
        return None
    if given.relation and not (given.solved and (wanted.relation or relations)):
        return False
    if given.variable and wanted.variable and given.variable != wanted.variable:
        return False
    left, right = wanted.points, given.points
    return bool(left == right or ((left - right).is_empty and (right - left).is_empty))


def _reading(text: str, read: Callable[[str], Sequence[Any]]) -> _Reading | None:
    text = _BLANK.sub(" ", _TEXT.sub(r" \1 ", text.replace("$", " "))).strip().removesuffix(".").strip()
    text = _LEFT_OUT.sub(r"\1 \\setminus ", _SIDE.sub(_side, text))
    built = _BUILDER.fullmatch(text)
    text = built[2] if built else _NAMED.sub("", _ALL.sub("", _SUCH_THAT.sub("", text, count=1), count=1), count=1)
    branches = [_branch(part, read) for part in _OR.split(text)]
    known = [branch for branch in branches if branch is not None]
    if len(known) < len(branches) or _overlap([branch.points for branch in known]):
        return None
    return _together(known, lambda left, right: left.union(right))


def _branch(text: str, read: Callable[[str], Sequence[Any]]) -> _Reading | None:
    """Conditions that "and" or commas join; between inequalities that do not narrow each other a comma is an "or"."""
    parts = [part for part in _AND.split(text) if not _REALS.fullmatch(part.strip())]
    listed = False
    if len(parts) == 1 and "," in parts[0]:
        pieces = [piece for piece in _conditions(parts[0]) if not _REALS.fullmatch(piece.strip())]
        apart = all(_UNEQUAL.search(piece) for piece in pieces[-max(1, len(pieces) - 1) :])
        listed = not apart and len(pieces) > 1 and all(map(_RELATION.search, pieces))
        if apart or listed or len(pieces) == 1:
            parts = pieces
    known = [_atom(part.strip(" ,;"), read) for part in parts]
    atoms = [atom for atom in known if atom is not None]
    if not atoms or len(atoms) < len(known):
        return None
    both = _together(atoms, lambda left, right: left.intersect(right))
    if not listed or both is None:
        return both
    points = [atom.points for atom in atoms]
    if not both.points.is_empty:
        return None if both.points in points else both
    return None if _overlap(points) else _together(atoms, lambda left, right: left.union(right))


def _side(match: re.Match[str]) -> str:
    if match["sign"]:
        return _SIDES[match["sign"]]
    upper = match["relation"].lstrip("\\")[0] in ">g"
    closed = match["relation"].lstrip("\\") not in ("<", ">", "lt", "gt")
    return (r"[0,\infty)" if upper else r"(-\infty,0]") if closed else _SIDES["+" if upper else "-"]


def _conditions(text: str) -> list[str]:
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def _together(readings: list[_Reading], join: Callable[[Any, Any], Any]) -> _Reading | None:
    variables = {reading.variable for reading in readings if reading.variable}
    if len(variables) > 1:
        return None
    points = readings[0].points
    for reading in readings[1:]:
        points = join(points, reading.points)
    relation = any(reading.relation for reading in readings)
    return _Reading(points, "".join(variables), relation, all(reading.solved for reading in readings))


def _overlap(sets: list[Any]) -> bool:
    """True when alternatives have more than single points in common: that is a hedge and no union of cases."""
    return any(left.intersect(right).is_finite_set is not True for left, right in combinations(sets, 2))


def _atom(text: str, read: Callable[[str], Sequence[Any]]) -> _Reading | None:
    from sympy import Abs, Equality, FiniteSet, Float, Not, Rational, Set, Symbol, Tuple
    from sympy.core.function import AppliedUndef
    from sympy.core.relational import Relational
    from sympy.logic.boolalg import And

    if not text:
        return None
    expression = next((value for value in read(text) if not isinstance(value, str)), None)
    if isinstance(expression, Tuple):
        return None
    if expression is None:
        return None
    absent = isinstance(expression, Not)
    expression = expression.args[0] if absent else expression
    if isinstance(expression, Equality) and isinstance(expression.rhs, Set) and isinstance(expression.lhs, Symbol):
        return _set(expression.rhs, expression.lhs.name, absent=absent)
    if isinstance(expression, Set):
        return _set(expression, "", absent=absent)
    if (
        isinstance(expression, Equality)
        and isinstance(expression.lhs, Symbol)
        and expression.rhs.is_real is True
        and not absent
    ):
        return _Reading(FiniteSet(expression.rhs), expression.lhs.name, relation=True)
    if absent or isinstance(expression, Equality) or not isinstance(expression, Relational | And):
        return None
    expression = expression.xreplace({call: Symbol(str(call), real=True) for call in expression.atoms(AppliedUndef)})
    if len(expression.free_symbols) != 1 or expression.count_ops() > _MOST_OPERATIONS:
        return None
    exact = expression.xreplace({number: Rational(str(number)) for number in expression.atoms(Float)})
    if isinstance(exact, And) and any(not isinstance(part, Relational) for part in exact.args):
        return None
    variable = next(iter(expression.free_symbols))
    try:
        points = exact.as_set()
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None
    size = Abs(variable)
    solved = all(
        variable in part.args or size in part.args for part in (exact.args if isinstance(exact, And) else (exact,))
    )
    return _Reading(points, variable.name, relation=True, solved=solved) if not points.free_symbols else None


def _set(points: Any, variable: str, *, absent: bool) -> _Reading | None:
    from sympy import Float, Rational, S
    from sympy.core.relational import Relational

    if points.free_symbols or points.atoms(Relational):
        return None
    points = points.xreplace({number: Rational(str(number)) for number in points.atoms(Float)}).doit()
    if points.is_subset(S.Reals) is not True:
        return None
    return _Reading(S.Reals - points if absent else points, variable)
