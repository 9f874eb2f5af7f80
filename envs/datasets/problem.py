"""Reads and checks a dataset row as a problem with a known number as its answer.

Reading a row that was already read changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from grpo.envs.datasets.checks import checked_text, kind
from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.errors import DatasetError

_MARK = "####"
_ANNOTATION = lazy_pattern(r"<<[^<>]*>>")
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)"
_FRACTION = rf"(?:{_DIGITS} )?{_DIGITS}/0*[1-9][0-9]*"
_NUMBER = lazy_pattern(rf"(?P<sign>[-+]?)(?P<value>{_DECIMAL}(?:[eE][-+]?[0-9]{{1,3}})?(?: ?%)?|{_FRACTION})")
_CURRENCY = lazy_pattern(r"[$€£¥]\s*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its gold answer."""

    question: str
    # the gold number without currency sign and thousands commas, such as "72", "-3.5", "3/4", "1 1/2" or "12%"
    answer: str
    solution: str  # the worked text as the row has it, or the answer alone when the row has no working
    extra: Mapping[str, Any]

    @property
    def reasoning(self) -> str:
        """The worked steps without calculator annotations and final answer; "" when the row has no working."""
        work, _, last = self.solution.rpartition(_MARK)
        if bare_number(last) is None:
            work = self.solution
        return _ANNOTATION.sub("", work).strip()

    def row(self) -> dict[str, Any]:
        """Returns the columns that rewards and verifiers read."""
        return {**self.extra, "question": self.question, "answer": self.answer, "solution": self.solution}


def bare_number(text: str) -> str | None:
    """Returns a number without currency sign, thousands commas and plus sign; None when `text` is not one number."""
    compact = _CURRENCY.sub("", text.strip().replace("\N{MINUS SIGN}", "-"), count=1).removesuffix(".")
    match = _NUMBER.fullmatch(compact)
    if match is None:
        return None
    return match["sign"].removeprefix("+") + match["value"].replace(",", "").replace(" %", "%")


def read_problem(row: object, where: str, *, question: str = "question", answer: str = "answer") -> Problem:
    """Checks one row; raises DatasetError with its place `where`, such as "rows.jsonl, line 3".

    The answer column holds a worked text that ends in `#### 72`, or the number alone (text or number); then a column
    `solution`, if any, is the worked text.
    """
    if not isinstance(row, Mapping):
        raise DatasetError(
            f"{where}: expected an object with the columns '{question}' and '{answer}', found {kind(row)}. "
            "Write each row as one JSON object."
        )
    text = _text(row, question, where, numbers=False)
    given = _text(row, answer, where, numbers=True)
    before, mark, last = given.rpartition(_MARK)
    gold = bare_number(last)
    if gold is None:
        shown = last.strip() if len(last.strip()) <= 60 else last.strip()[:57] + "..."
        raise DatasetError(
            f"{where}: the gold answer {shown!r} in the column '{answer}' is not a number. End the text with "
            f"'{_MARK} 72', or write the number alone."
        )
    solution = given
    if not (mark and before.strip()) and isinstance(row.get("solution"), str) and row["solution"].strip():
        solution = _text(row, "solution", where, numbers=False)
    extra = {str(name): value for name, value in row.items() if name not in ("question", "answer", "solution")}
    return Problem(text, gold, solution, extra)


def _text(row: Mapping[Any, Any], column: str, where: str, *, numbers: bool) -> str:
    if column not in row:
        have = ", ".join(map(str, row)) or "none"
        raise DatasetError(
            f"{where}: no column '{column}' (the row has: {have}). Name the columns with the options 'question' and "
            "'answer'."
        )
    value = row[column]
    if numbers and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        text = f"{Decimal(str(value)):f}"
        return text.rstrip("0").removesuffix(".") if "." in text else text
    wanted = "text or a number" if numbers else "text"
    return checked_text(value, f"{where}: the column '{column}'", empty=numbers, wanted=wanted)
