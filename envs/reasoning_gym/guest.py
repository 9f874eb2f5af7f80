"""Runs the graders of reasoning-gym inside a sandbox, and refuses answers that are known to cheat them (`probed.json`).

It imports reasoning-gym and the standard library only.
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import keyword
import operator
import pickle
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

Entry = Mapping[str, Any]
Clause = frozenset[tuple[str, bool]]
Recipe = tuple[str, int, int, str, bytes, frozenset[str]]

_TOLERANCE = 1e-4  # of coin_flip
_TOKENS = re.compile(r"\s+|[0-9]+\.?[0-9]*|\.[0-9]+|[A-Za-z_][A-Za-z_0-9]*|\*\*|[-+*/(),]")
_ELEMENTARY = (
    "exp log ln sqrt Abs sin cos tan cot sec csc asin acos atan acot asec acsc sinh cosh tanh coth asinh acosh"
)
_SPECIAL = "atanh erf erfc erfi Si Ci Ei li gamma lowergamma uppergamma fresnels fresnelc"
_FUNCTIONS = frozenset((*_ELEMENTARY.split(" "), *_SPECIAL.split(" ")))
_OPERATIONS: Mapping[type[ast.AST], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_TO_MAKE = 24
_MOST_CLAUSES = 4096


def handle(request: tuple[Recipe, Entry, str, bool]) -> dict[str, Any]:
    """Scores an answer; returns `score`, and `refused`: why it is refused, or "". Raises what the grader raises.

    `request`: the dataset (name, size, seed and settings as JSON; its small attributes as a pickle, and the names of
    the others), the problem, the answer, and whether the grader decides alone.
    """
    recipe, entry, answer, as_published = request
    member = recipe[0]
    probed = member in BEFORE and not as_published and answer != entry["answer"]
    refused = BEFORE[member](answer, entry) if probed else ""
    if refused:
        return {"score": 0.0, "refused": refused}
    score = _graded(recipe, answer, entry)
    if as_published:
        return {"score": score, "refused": ""}
    if not 0.0 <= score <= 1.0:
        return {"score": 0.0, "refused": f"the grader gave {score}"}
    if score > 0.0 and member in AFTER:
        refused = AFTER[member](answer, entry)
    return {"score": 0.0 if refused else score, "refused": refused}


def _graded(recipe: Recipe, answer: str, entry: Entry) -> float:
    """Makes the whole dataset only if the grader asks for a large attribute."""
    small, missed = _small(recipe)
    missed.clear()
    try:
        score = float(small.score_answer(answer, entry))
    except BaseException:
        if not missed:
            raise
    if missed:  # whatever the grader made of that
        score = float(_whole(recipe).score_answer(answer, entry))
    return score


@functools.cache
def _small(recipe: Recipe) -> tuple[Any, list[str]]:
    """A dataset without its large attributes, and the list of those that were asked for."""
    from reasoning_gym.factory import DATASETS

    member, _, _, _, attributes, left_out = recipe
    missed: list[str] = []

    def miss(self: Any, name: str) -> Any:
        if name in left_out:
            missed.append(name)
        raise AttributeError(name)

    kind: Any = DATASETS[member][0]
    made: Any = object.__new__(type(kind.__name__, (kind,), {"__getattr__": miss}))
    made.__dict__.update(pickle.loads(attributes))
    return made, missed


@functools.cache
def _whole(recipe: Recipe) -> Any:
    import reasoning_gym

    member, size, seed, config, _, _ = recipe
    return reasoning_gym.create_dataset(member, size=size, seed=seed, **json.loads(config))


def _no_program(answer: str, entry: Entry) -> str:
    """Refuses what Python would run and is not a list of plain values; what it cannot parse it does not run."""
    try:
        ast.parse(answer.lstrip(" \t"), mode="eval")
    except (SyntaxError, ValueError):
        return ""
    try:
        ast.literal_eval(answer)
    except ValueError:
        return "the grader would run it as Python" if answer.strip() != str(entry["answer"]).strip() else ""
    return ""


def _calculation(answer: str, entry: Entry) -> str:
    return _formula(answer, names=False, functions=frozenset(), powers=False)


def _makes_24(answer: str, entry: Entry) -> str:
    """Refuses a calculation that does not use the numbers of the problem, each once, or makes 24 by rounding alone."""
    given = sorted(int(number) for number in entry["metadata"]["numbers"])
    if refused := _calculation(answer, entry):
        return refused
    if sorted(int(number) for number in re.findall(r"[0-9]+", answer)) != given:
        return "it does not use the numbers of the problem"
    try:
        made = _value(ast.parse(answer.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return ""  # which the grader cannot read either
    return "" if made == _TO_MAKE else f"it makes {float(made):.6g}"


def _value(node: ast.AST) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_value(left), _value(right))
    raise ValueError("no calculation")


def _plain_formula(answer: str, entry: Entry) -> str:
    """Allows only a formula: a call could multiply out for the policy."""
    return _formula(answer, functions=frozenset())


def _antiderivative(answer: str, entry: Entry) -> str:
    """Allows only a formula: an integral could be left to the grader."""
    return _formula(answer, functions=_FUNCTIONS)


def _formula(text: str, *, functions: frozenset[str], names: bool = True, powers: bool = True) -> str:
    """Allows only numbers, operators, names and calls of these functions."""
    at, before = 0, ""
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            return f"{text[at]!r} is not a part of a formula"
        token, at = match[0], match.end()
        if token == "(" and (before[:1].isalnum() or before[:1] in ("_", ")")) and before not in functions:
            return f"{before[:40]!r} is not a function of a formula"
        if (token[0].isalpha() or token[0] == "_") and (not names or keyword.iskeyword(token) or "__" in token):
            return f"{token[:40]!r} is not a part of a formula"
        if token == "**" and not powers:
            return "it uses a power, which the problem does not allow"
        before = before if token.isspace() else token
    return ""


def _no_nan(answer: str, entry: Entry) -> str:
    """Refuses NaN: it is in order with every other number, and at no distance from any."""
    return "nan is not a number" if "nan" in answer.lower() else ""


def _right_or_wrong(answer: str, entry: Entry) -> str:
    """Refuses what is not the truth value itself: the grader takes every text for true."""
    return "" if answer.strip().lower() == str(entry["answer"]).lower() else "it is not the right truth value"


def _concluded(answer: str, entry: Entry) -> str:
    """Refuses what only restates or weakens the premises, unless it is the known conclusion.

    An answer is written as clauses by distribution alone, so that each clause of weakened or joined premises follows
    from one premise. From premises that contradict each other everything follows, and only the known conclusion counts.
    """
    from reasoning_gym.logic.propositional_logic import Expression

    about = entry["metadata"]
    stated, known, *premises = map(Expression.from_string, (answer, about["example_answer"], *about["premises"]))
    if str(stated) == str(known):
        return ""
    names = sorted({*about["variables"], *(name for premise in premises for name in _names(premise))})
    if strange := _names(stated) - set(names):
        return f"{min(strange)!r} is not a variable of the problem"
    rows = [dict(zip(names, row, strict=True)) for row in itertools.product((False, True), repeat=len(names))]
    true_in = [[row for row in rows if premise.evaluate(row)] for premise in premises]
    if not any(all(premise.evaluate(row) for premise in premises) for row in rows):
        return "the premises contradict each other, so that everything follows"
    clauses = _clauses(stated)
    if clauses is None:
        return "it is too long to tell what it concludes"
    alone = (any(all(_holds(clause, row) for row in true) for true in true_in) for clause in clauses)
    return "it follows from the premises one by one" if all(alone) else ""


def _names(formula: Any) -> set[str]:
    if formula.operator is None:
        return {formula.left}
    return set().union(*(_names(part) for part in (formula.left, formula.right) if part is not None))


def _holds(clause: Clause, row: Mapping[str, bool]) -> bool:
    return any(row[name] is sign for name, sign in clause)


def _clauses(formula: Any) -> frozenset[Clause] | None:
    """A formula as clauses by distribution; None for more than `_MOST_CLAUSES`."""
    known: dict[tuple[int, bool], frozenset[Clause] | None] = {}

    def clauses(part: Any, negated: bool) -> frozenset[Clause] | None:
        if (id(part), negated) not in known:
            known[id(part), negated] = computed(part, negated)
        return known[id(part), negated]

    def computed(part: Any, negated: bool) -> frozenset[Clause] | None:
        operation, left, right = part.operator, part.left, part.right
        if operation is None:
            return frozenset({frozenset({(left, not negated)})})
        if operation == "\u00ac":
            return clauses(left, not negated)
        if operation == "\u2194":
            joined = _joined(clauses(left, True), clauses(right, negated), conjunction=False)
            other = _joined(clauses(left, False), clauses(right, not negated), conjunction=False)
            return _joined(joined, other, conjunction=True)
        joined = clauses(left, negated != (operation == "\u2192"))
        return _joined(joined, clauses(right, negated), conjunction=(operation == "\u2227") != negated)

    return clauses(formula, False)


def _joined(
    first: frozenset[Clause] | None, other: frozenset[Clause] | None, *, conjunction: bool
) -> frozenset[Clause] | None:
    """The clauses of two formulas that both hold, or of which one does."""
    if first is None or other is None or len(first) * len(other) > _MOST_CLAUSES:
        return None
    return first | other if conjunction else frozenset(left | right for left in first for right in other)


def _near(answer: str, entry: Entry) -> str:
    """Refuses a probability that only begins like the right one."""
    stated, gold = (float(Fraction(text.replace(",", ""))) for text in (answer, entry["answer"]))
    return "" if abs(stated - gold) <= _TOLERANCE else "it is not the right probability"


BEFORE: Mapping[str, Callable[[str, Entry], str]] = {
    **dict.fromkeys(("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"), _no_program),
    **dict.fromkeys(("intermediate_integration", "simple_integration"), _antiderivative),
    "complex_arithmetic": _no_nan,
    "countdown": _calculation,
    "game_of_life_halting": _right_or_wrong,
    "number_sorting": _no_nan,
    "polynomial_multiplication": _plain_formula,
    "puzzle24": _makes_24,
}
AFTER: Mapping[str, Callable[[str, Entry], str]] = {"coin_flip": _near, "propositional_logic": _concluded}
