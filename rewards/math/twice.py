"""Reads an answer that is stated in two ways as both values.

"$60^\\circ$, or $\\frac{\\pi}{3}$ radians", "2\u221a3 (about 3.46)" and "y = 3x - 4, or equivalently 3x - y = 4" are
one answer each; "5 or 6" is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.answer import Statement
from grpo.rewards.math.claim import claim
from grpo.rewards.math.cue import behind_cue
from grpo.rewards.numbers.quantity import unit

_LONGEST = 400
_JOINT = lazy_pattern(
    r"(?:\s*,?\s*(?:\\(?:text|mathrm)\s?\{\s*,?\s*)?(?:or|i\.e\.,?|that\s+is,?|which\s+(?:is|equals))\s*\}?"
    r"|\s*,(?=\s*(?:about|approximately|approx\.?|roughly|around|\\approx|\u2248)\s)|\s*(?<![<>!:=])=(?!=)"
    r"|(?:\s|\\[ ,;:]|\\q?quad(?![a-z]))+(?P<bracket>\()\s*(?:=|i\.e\.,?)?)"
    r"\s*(?:(?:is|be|or|i\.e\.,?|equivalently,?|(?:equivalent|equal)\s+to)\s+){0,2}"
    r"(?P<rough>(?:about|approximately|approx\.?|roughly|around|\\approx|\u2248)\s*)?(?=[-\d$\\a-zA-Z(])",
    re.IGNORECASE,
)
_FORMULA_AND_UNIT = lazy_pattern(
    r"\$([^$]{1,200})\$\s*(?P<unit>[A-Za-z][A-Za-z/\u00b7\u00b2\u00b3^*23\s-]{0,30})?[\s.]*\Z"
)
_BRACKETS = lazy_pattern(r"\\[()\[\]]")
_PLACES = lazy_pattern(r"\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Twice:
    """A value and the same value in other words, if it is that."""

    first: str  # the value as it was said first
    second: str  # as it was said then
    places: int | None  # decimals to which the second is meant, where it is said to be about the value; else None


def equivalent_forms(prediction: Statement, gold: str) -> Twice | None:
    """Returns what precedes and follows the one "or", "i.e." or bracket of a statement; None for other statements."""
    if len(prediction.parts) > 1:
        return None
    clause = _BRACKETS.sub("$", claim(prediction)[-_LONGEST:])
    joints = [joint for joint in _JOINT.finditer(clause) if clause[: joint.start()].count("$") % 2 == 0]
    if len(joints) != 1:
        return None
    first, second = clause[: joints[0].start()].strip(" ,"), clause[joints[0].end() :].rstrip(" .")
    if joints[0]["bracket"]:
        first, second = (first, second[:-1]) if second.endswith(")") else ("", "")
    values = [value if prediction.parts else _value(value, gold) for value in (first, second)]
    if not all(values):
        return None
    places = _PLACES.search(second)
    rough = (len(places[1]) if places else 0) if joints[0]["rough"] else None
    return Twice(str(values[0]), str(values[1]), rough)


def measured_formula(text: str) -> str | None:
    """Returns the formula that a text ends in with the unit behind it as LaTeX; None where no known unit follows."""
    match = _FORMULA_AND_UNIT.search(text[-_LONGEST:])
    if match is None or not match["unit"] or unit(f"1 {match['unit'].strip()}") is None:
        return None
    return f"{match[1]}\\text{{ {match['unit'].strip()}}}"


def _value(text: str, gold: str) -> str | None:
    if "$" in text:
        match = _FORMULA_AND_UNIT.search(text)
        if match is None:
            return None
        return measured_formula(text) or (None if match["unit"] else match[1])
    stated = behind_cue(Statement(text, "prose"), gold).parts
    return stated[0] if stated else None
