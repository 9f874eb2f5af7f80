"""Implements the three published proximity score tables, each with its four functions.

Source: the GRPO notebooks of Unsloth (Gemma3_(1B), Advanced_Llama3, Qwen3_(4B)), re-implemented from a description.
Each part of an expression is taken where it first fits: the same match in time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grpo.plugins._pattern import lazy_pattern

Table = Literal["gemma3_1b", "adv_llama3", "qwen3_4b"]

OPEN_WORKING, CLOSE_WORKING = "<start_working_out>", "<end_working_out>"
OPEN_SOLUTION, CLOSE_SOLUTION = "<SOLUTION>", "</SOLUTION>"


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """What one notebook pays."""

    opening: bool  # the completion must open with the working-out tag (else the prompt holds it)
    wrong_tag: float  # for a tag that does not occur exactly once
    no_format: float  # `check_answer` when the format does not match
    # exact, stripped: the text equals the gold as it is, or after stripping
    exact: float
    stripped: float
    # within_10, within_20, beyond: guess / gold in [0.9, 1.1], in [0.8, 1.2], elsewhere
    within_10: float
    within_20: float
    beyond: float
    no_ratio: float  # the guess or the gold is no float, or the gold is 0
    digits: re.Pattern[str]  # what `check_numbers` reads as a number
    commas: bool  # commas are dropped from the guess
    # no_number, equal, different: what `check_numbers` pays
    no_number: float
    equal: float
    different: float


TABLES: Mapping[Table, ScoreTable] = {
    "gemma3_1b": ScoreTable(
        True, -0.5, 0.0, 3.0, 1.5, 0.5, 0.25, -1.0, -0.5, lazy_pattern(r"[\d.]++"), False, 0.0, 1.5, 0.0
    ),
    "adv_llama3": ScoreTable(
        True, -1.0, 0.0, 3.0, 1.5, 1.0, 0.5, -1.5, -1.5, lazy_pattern(r"[\d.,]++"), True, 0.0, 1.5, -0.5
    ),
    "qwen3_4b": ScoreTable(
        False, -1.0, -2.0, 5.0, 3.5, 2.0, 1.5, -2.5, -4.5, lazy_pattern(r"-?[\d.,]++"), True, -2.5, 3.5, -1.5
    ),
}


def solution_text(completion: str, table: Table, eos: str) -> str | None:
    """Returns what stands in the `<SOLUTION>` block, not stripped, or None when the format does not match.

    Table qwen3_4b needs no opening tag and allows the end-of-sequence token `eos` ("" for none) after the block.
    """
    opens = TABLES[table].opening
    opening = r"(?>(?:.*?\n)??[^\S\n]*+<start_working_out>)." if opens else ""
    token = rf"|\s*+{re.escape(eos)}[^\S\n]*+(?:\n|\Z)" if eos and not opens else ""
    form = rf"{opening}(?>.*?<end_working_out>)(?>.*?<SOLUTION>)(..*?)</SOLUTION>(?:[^\S\n]*+(?:\n|\Z){token})"
    match = re.compile(form, re.DOTALL).match(completion)
    return match[1] if match else None


def score_tags(completion: str, table: Table) -> float:
    """Gives 0.5 per tag that occurs exactly once, the table's penalty per tag that does not."""
    tags = (OPEN_WORKING, CLOSE_WORKING, OPEN_SOLUTION, CLOSE_SOLUTION)
    wanted = tags if TABLES[table].opening else tags[1:]
    return sum(0.5 if completion.count(tag) == 1 else TABLES[table].wrong_tag for tag in wanted)


def score_answer(completion: str, gold: str, table: Table, eos: str) -> float:
    """Returns the table's score for the block's text beside the gold: equal, nearly equal as a ratio, or neither."""
    paid = TABLES[table]
    guess = solution_text(completion, table, eos)
    if guess is None:
        return paid.no_format
    if guess == gold:
        return paid.exact
    if guess.strip() == gold.strip():
        return paid.stripped
    try:
        ratio = float(guess) / float(gold)
    except (ValueError, ZeroDivisionError):
        return paid.no_ratio
    if 0.9 <= ratio <= 1.1:
        return paid.within_10
    return paid.within_20 if 0.8 <= ratio <= 1.2 else paid.beyond


def score_number(completion: str, gold: str, table: Table) -> float:
    """Returns the table's score for the first digits after the first `<SOLUTION>`, as a float, beside the gold's."""
    paid = TABLES[table]
    start = completion.find(OPEN_SOLUTION)
    match = paid.digits.search(completion, start + len(OPEN_SOLUTION)) if start >= 0 else None
    if match is None:
        return paid.no_number
    guess = match[0].replace(",", "") if paid.commas else match[0]
    try:
        return paid.equal if float(guess) == float(gold.strip()) else paid.different
    except ValueError:
        return 0.0


def gold_text(answer: object) -> str:
    """Returns the gold as the notebooks' loaders pass it on: what follows "####", stripped, else the text as it is."""
    text = str(answer)
    return text.split("####")[1].strip() if "####" in text else text
