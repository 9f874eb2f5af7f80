"""Generates Countdown puzzles from their solutions: joins numbers two by two until one is left, the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.envs.datasets.draws import Draws
from grpo.envs.text.single_turn import Asked
from grpo.envs.text.templates import Template
from grpo.plugins.errors import DatasetError, with_article

_MOST_TRIES = 2000
_SIGNS = "+-*/"
_SUM, _PRODUCT, _ATOM = 1, 2, 3


@dataclass(frozen=True, slots=True)
class _Term:
    """A part of an expression: its value, its text, and how tightly its last operation binds."""

    value: int
    text: str
    binding: int = _ATOM


def draw_puzzle(draws: Draws, *, fewest: int, most: int, highest: int, highest_target: int) -> dict[str, Any]:
    """Returns a row with `question`, `numbers`, `target`, `answer` (an expression) and `solution` (its steps)."""
    for _ in range(_MOST_TRIES):
        numbers = [draws.whole(1, highest) for _ in range(draws.whole(fewest, most))]
        target, steps = _joined(draws, [_Term(number, str(number)) for number in numbers])
        if min(10, highest_target) <= target.value <= highest_target:
            return {
                "question": question_of(numbers, target.value),
                "numbers": numbers,
                "target": target.value,
                "answer": target.text,
                "solution": "\n".join(steps),
            }
    raise DatasetError(
        f"countdown: no puzzle found with numbers up to {highest} and targets up to {highest_target}. Raise "
        "'highest_target' or lower 'highest'."
    )


def question_of(numbers: Sequence[int], target: int) -> str:
    given = ", ".join(str(number) for number in numbers)
    return f"Use each of the numbers {given} exactly once, with + - * / and brackets, to reach {target}."


def read_puzzle(row: object, where: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise DatasetError(
            f"{where}: a row has the columns numbers and target; this is {with_article(type(row).__name__)}."
        )
    numbers = row.get("numbers", row.get("nums"))
    if isinstance(numbers, str | bytes) or not isinstance(numbers, Sequence) or not numbers:
        raise DatasetError(f"{where}: the column 'numbers' (or 'nums') must be a list of whole numbers.")
    for value in (*numbers, row.get("target")):
        if not isinstance(value, int) or isinstance(value, bool):
            raise DatasetError(f"{where}: 'target' and the 'numbers' must be whole numbers, found {value!r:.60}.")
    extra = {str(name): value for name, value in row.items() if name != "nums"}
    return {"question": question_of(numbers, row["target"]), **extra, "numbers": list(numbers)}


def ask_puzzle(row: object, where: str, template: Template) -> Asked:
    """Returns what the episode of a row shows; a row with an `answer` has a demonstration. Raises DatasetError."""
    puzzle = read_puzzle(row, where)
    answer, solution = puzzle.get("answer"), puzzle.get("solution")
    worked = isinstance(answer, str) and answer
    shown = template.render(solution if isinstance(solution, str) else str(answer), str(answer)) if worked else ""
    return Asked(str(puzzle["question"]), puzzle, template.system, shown)


def _joined(draws: Draws, terms: list[_Term]) -> tuple[_Term, list[str]]:
    """Joins terms until one is left; returns it and a line for each step."""
    steps = []
    while len(terms) > 1:
        left, right = draws.take(terms), draws.take(terms)
        if left.value < right.value:
            left, right = right, left
        sign = draws.pick(_SIGNS)
        if (sign == "-" and left.value == right.value) or (sign == "/" and left.value % right.value):
            sign = "+"  # the others would leave 0 or a fraction
        term = _joined_by(left, sign, right)
        steps.append(f"{left.value} {sign} {right.value} = {term.value}")
        terms.append(term)
    return terms[0], steps


def _joined_by(left: _Term, sign: str, right: _Term) -> _Term:
    if sign == "+":
        return _Term(left.value + right.value, f"{left.text} + {right.text}", _SUM)
    if sign == "-":
        return _Term(left.value - right.value, f"{left.text} - {_inside(right, _PRODUCT)}", _SUM)
    first, second = _inside(left, _PRODUCT), _inside(right, _ATOM if sign == "/" else _PRODUCT)
    value = left.value * right.value if sign == "*" else left.value // right.value
    return _Term(value, f"{first} {sign} {second}", _PRODUCT)


def _inside(term: _Term, least: int) -> str:
    return term.text if term.binding >= least else f"({term.text})"
