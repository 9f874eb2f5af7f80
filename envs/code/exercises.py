"""Generates programming exercises that one expression solves, for a policy that has never seen a program.

Rows have the form of MBPP. Names, wording and constants vary with a seed; every task is stated in full.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_NAMES = ("f", "g", "solve", "compute", "convert", "change", "result", "work", "answer", "make", "calc", "task")
_ASKS = (
    "Write a function {call} that returns {what}.",
    "Define {call}. It returns {what}.",
    "{call} must return {what}.",
)
_WORDS = ("red", "sun", "map", "tree", "note", "lamp", "river", "stone", "green", "apple", "window", "garden")


@dataclass(frozen=True, slots=True)
class _Family:
    """A kind of exercise.

    `what`: its wording; `{a}` is the argument and `{k}` a constant. `solution`: the expression that solves it.
    `argument`: the kind of the argument. `lowest`, `highest`: the constants.
    """

    what: str
    solution: str
    argument: str
    lowest: int = 2
    highest: int = 30


_FAMILIES = (
    _Family("{a} plus {k}", "{a} + {k}", "number"),
    _Family("{a} minus {k}", "{a} - {k}", "number"),
    _Family("{a} times {k}", "{a} * {k}", "number"),
    _Family("{k} minus {a}", "{k} - {a}", "number"),
    _Family("the remainder of {a} divided by {k}", "{a} % {k}", "number"),
    _Family("the square of {a} plus {k}", "{a} * {a} + {k}", "number"),
    _Family("whether {a} is greater than {k}", "{a} > {k}", "number"),
    _Family("the larger of {a} and {k}", "max({a}, {k})", "number"),
    _Family("the smaller of {a} and {k}", "min({a}, {k})", "number"),
    _Family("the text {a} repeated {k} times", "{a} * {k}", "text", 2, 9),
    _Family("the first {k} characters of the text {a}", "{a}[:{k}]", "text", 1, 5),
    _Family("the text {a} without its first {k} characters", "{a}[{k}:]", "text", 1, 5),
    _Family("the last {k} characters of the text {a}", "{a}[-{k}:]", "text", 1, 3),
    _Family("the length of the text {a} plus {k}", "len({a}) + {k}", "text"),
    _Family("the sum of the list {a} plus {k}", "sum({a}) + {k}", "list"),
    _Family("how often {k} is in the list {a}", "{a}.count({k})", "list", 0, 6),
    _Family("the largest item of the list {a} minus {k}", "max({a}) - {k}", "list"),
    _Family("the list {a} with {k} added at its end", "{a} + [{k}]", "list"),
)
_ARGUMENTS = {"number": ("x", "n", "a", "value"), "text": ("s", "text", "word"), "list": ("items", "xs", "numbers")}
_TESTS = 4


def all_exercises(seed: int) -> list[dict[str, object]]:
    """Returns every exercise once, in an order that the seed decides."""
    rng = random.Random(seed)
    rows = [
        _exercise(rng, family, number, argument)
        for family in _FAMILIES
        for number in range(family.lowest, family.highest + 1)
        for argument in _ARGUMENTS[family.argument]
    ]
    rng.shuffle(rows)
    return rows


def _exercise(rng: random.Random, family: _Family, number: int, argument: str) -> dict[str, object]:
    name = rng.choice(_NAMES)
    what = family.what.format(a=argument, k=number)
    expression = family.solution.format(a=argument, k=number)
    question = rng.choice(_ASKS).format(call=f"{name}({argument})", what=what)
    results: dict[str, str] = {}
    while len(results) < _TESTS or len(set(results.values())) == 1 or all(a == b for a, b in results.items()):
        value = _value(rng, family.argument, number)
        results[repr(value)] = repr(eval(expression, {argument: value}))
    tests = [f"assert {name}({value}) == {result}" for value, result in list(results.items())[-_TESTS:]]
    return {
        "question": question,
        "entry_point": name,
        "code": f"def {name}({argument}):\n    return {expression}\n",
        "test_list": tests,
    }


def _value(rng: random.Random, kind: str, number: int) -> object:
    if kind == "number":
        return rng.choice((rng.randint(-50, 100), number + rng.randint(-2, 2)))
    if kind == "text":
        return " ".join(rng.sample(_WORDS, rng.randint(1, 2)))
    return [rng.randint(0, 6) for _ in range(rng.randint(1, 6))]
