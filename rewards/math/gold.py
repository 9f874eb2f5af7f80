"""Reads a row's gold once, in all forms that the verifier needs, for all completions of a group."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.answer import MARKUP, gold_text, plain, statement
from grpo.rewards.math.choice import gold_letter, gold_letters
from grpo.rewards.math.claim import groups
from grpo.rewards.math.dates import is_date
from grpo.rewards.math.normalize import choice_label, normalized
from grpo.rewards.math.number import DIGITS_ALONE, number_of
from grpo.rewards.numbers.numerals import Number
from grpo.rewards.numbers.quantity import amounts

_WORDS = lazy_pattern(r"(?!(?:sin|cos|tan|log|sqrt|exp|ln)\w?\b)[^\W\d_]+(?:[\s,'\u2019-]+[^\W\d_]+)*[.!]?")
_WORD = lazy_pattern(r"(?i:\b(?:yes|no|odd)\b)|[^\W\d_]{4,}|[^\W\d_]\s+[^\W\d_]{2,}|[^\W\d_]{2,}\s+[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer."""

    text: str  # it in the usual spelling, without a choice's letter before its value
    label: str  # that letter, or ""
    plain: str  # the text without what never changes its meaning
    core: str  # its marked content
    values: frozenset[str] | None  # the values that joining words or semicolons part, or None for a single one
    words: str | None  # it in words, or None where it is no text of words
    letter: str | None  # the capital letter that it is, or None
    letters: frozenset[str] | None  # the letters that it is, of several choices, or None
    number: Number | None  # the number that it is, or None
    moment: bool  # it is a time of day or a date
    amount: bool  # it is one quantity of a known unit, or of several: "3 hours 20 minutes"


def read_gold(answer: object) -> Gold | None:
    """Returns the gold of a row, or None when it is empty, or neither a text nor a number."""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    return _read(answer)


@lru_cache(maxsize=4096, typed=True)
def _read(answer: str | float) -> Gold | None:
    given = gold_text(answer)
    if given is None:
        return None
    if DIGITS_ALONE.fullmatch(given):
        number = Number(Fraction(given), Fraction(1), given, 0, len(given))
        return Gold(given, "", given, given, None, None, None, None, number, "." in given and is_date(given), False)
    text = normalized(given)
    letters = gold_letters(marked(text))
    label, text = ("", text) if letters else choice_label(text)
    core = marked(text)
    bare = plain(text)
    words = MARKUP.sub(r"\1", text) if _in_words(text) else None
    value = number_of(answer, text, core)
    measured = len(amounts(core)) == 1
    return Gold(
        text, label, bare, core, groups(core), words, gold_letter(bare), letters, value, is_date(core), measured
    )


def marked(text: str) -> str:
    """Returns the marked content of a text, or all of it where nothing or more than one thing is marked."""
    prediction = statement(text)
    return prediction.parts[0] if prediction is not None and len(prediction.parts) == 1 else text


def _in_words(gold: str) -> bool:
    """True for a gold of words; a few letters without a blank may as well be a product of variables."""
    text = MARKUP.sub(r"\1", gold.strip().strip("$")).strip()
    return bool(_WORDS.fullmatch(text) and _WORD.search(text))
