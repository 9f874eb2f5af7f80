"""Finds where the gold answer stands in a completion: a slot that other answers can be put into."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

ANSWER_NAMES = ("answer", "solution", "target", "gold", "expected", "label", "ground_truth", "reference")
QUESTION_NAMES = ("question", "prompt", "problem", "input", "query", "instruction")
LAYOUTS = (
    "{}",
    "The answer is {}.",
    "<think>\nLet me see.\n</think>\n<answer>{}</answer>",
    "<reasoning>\nLet me see.\n</reasoning>\n<answer>\n{}\n</answer>\n",
    "I add them up.\n#### {}",
    "\\boxed{{{}}}",
)
"""In which policies write an answer."""
_NUMBER = re.compile(r"(?<![\w.,])[-+]?[$€£]?[-+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w%/]|[.,]\d)")
_LONGEST = 200
_LARGER = 1200


@dataclass(frozen=True, slots=True)
class Example:
    """A text with the row that it answers."""

    text: str  # the completion
    row: Mapping[str, Any]  # the columns
    # the number of its group among the examples that it is scored with, or None where it stands alone
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of the gold answer in a gold completion."""

    example: Example  # the completion and its row
    column: str  # the column with the gold
    # start, end: where the answer stands in the text
    start: int
    end: int
    gold: str  # the answer as the column has it, without the working before "####"
    value: Decimal | None  # the gold as a number, or None

    def filled(self, answer: str) -> Example:
        """Returns the example with another answer in the slot."""
        text = self.example.text
        return Example(text[: self.start] + answer + text[self.end :], self.example.row)

    def enlarged(self) -> Slot | None:
        """Returns the slot with 1200 as gold and answer, which can have a comma; None where the gold is no number."""
        raw = self.example.row[self.column]
        if self.value is None:
            return None
        text: Any = _LARGER
        if isinstance(raw, str):
            last = list(_NUMBER.finditer(raw))[-1]
            text = f"{raw[: last.start()]}{_LARGER}{raw[last.end() :]}"
        filled = self.filled(str(_LARGER))
        example = Example(filled.text, {**self.example.row, self.column: text})
        return Slot(example, self.column, self.start, self.start + len(str(_LARGER)), str(_LARGER), Decimal(_LARGER))


def find_slot(example: Example, column: str) -> Slot | None:
    """Returns where the gold of that column stands last in the completion, or None."""
    gold = gold_text(example.row.get(column))
    if gold is None:
        return None
    numbers = list(_NUMBER.finditer(gold))
    value = number(numbers[0][0]) if len(numbers) == 1 and numbers[0][0] == gold else None
    if value is not None:
        spans = [match.span() for match in _NUMBER.finditer(example.text) if number(match[0]) == value]
    else:
        spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(gold)}(?!\w)", example.text, re.IGNORECASE)]
    return Slot(example, column, *spans[-1], gold, value) if spans else None


def gold_text(raw: object) -> str | None:
    """Returns the gold of a column, without the working before "####"; None where it is no short text."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    gold = str(raw).rpartition("####")[2].strip()
    return gold if gold and len(gold) <= _LONGEST else None


def last_number(text: str) -> tuple[int, int] | None:
    """Returns where the last number of a text stands, or None."""
    spans = [match.span() for match in _NUMBER.finditer(text)]
    return spans[-1] if spans else None


def answer_column(examples: list[Example], columns: list[str]) -> str | None:
    """Returns the column whose gold the completions state: by its name, or because its value stands in all of them."""
    named = [name for name in ANSWER_NAMES if name in columns]
    others = [name for name in columns if name not in (*ANSWER_NAMES, *QUESTION_NAMES)]
    for name in named:
        if any(find_slot(example, name) for example in examples):
            return name
    for name in others:
        if examples and all(find_slot(example, name) for example in examples):
            return name
    return None


def number_forms(value: Decimal) -> Iterator[tuple[str, str]]:
    """Yields other ways to write a number, by name: 1200 as 1,200, 1200.0 and $1200."""
    whole = value == value.to_integral_value()
    plain = str(int(value)) if whole else f"{value:f}"
    if whole and abs(value) >= 1000:
        yield "thousands comma", f"{int(value):,}"
    yield "trailing zero", f"{plain}.0" if whole else f"{plain}0"
    if value >= 0:
        yield "currency sign", f"${plain}"


def number(text: str) -> Decimal:
    return Decimal(re.sub(r"[$€£,]", "", text))
