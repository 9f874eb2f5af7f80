"""Compares numerals with a base, `1011_2` or "204 base 5", whose subscript computer algebra drops."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_WORDS = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_BASES = {word: base for base, word in enumerate(_WORDS.split(), 2)}
_BASES |= {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16, "hex": 16}
_FACE = r"(?:\\(?:text|textbf|textrm|mathrm|mbox|rm)\s?\{?\s*)?"
_NUMERAL = lazy_pattern(
    r"(?P<left>(?:\\left)?\(\s*)?(?:\\(?:text|mathrm|overline)\s?\{\s*)?(?P<digits>[0-9A-Fa-f]{1,400})\}?(?(left)\s*(?:\\right)?\))"
    rf"(?:\s*_\s*\{{?\s*{_FACE}(?:base\s*\}}?\s*)?(?P<sub>\d{{1,2}}|[a-z]{{3,8}})\s*\}}{{0,2}}"
    rf"|(?:\\[ ,;~]|[\s~,(])+{_FACE}\(?(?:in\s+)?base(?:\\ |[\s~-])*\}}?(?P<base>\d{{1,2}}|[a-z]{{3,8}})\s*\}}?\)?)",
    re.IGNORECASE,
)
_BARE = lazy_pattern(r"\s*+\$?\s*+(?:\\(?:text|mathrm)\s?\{)?([0-9A-Fa-f]{1,400})\}?\s*+\$?\s*+\.?\s*+")


_OPEN_BASE = lazy_pattern(r"\s*\$?\s*\(?\d{1,400}\)?\s*_\s*\{?\s*[a-zA-Z]\s*\}?\s*\$?\s*")


def numeral(text: str) -> tuple[str, int] | None:
    """Returns the digits, in capitals and without leading zeros, and the base of a numeral; None for anything else."""
    match = _NUMERAL.fullmatch(text.strip().strip("$").strip().removesuffix("."))
    if match is None or not any(map(str.isdigit, match["digits"])):
        return None
    name = (match["sub"] or match["base"]).lower()
    base = int(name) if name.isdecimal() else _BASES.get(name, 0)
    digits = match["digits"].upper()
    if not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in digits):
        return None
    return digits.lstrip("0") or "0", base


def same_numeral(gold: str, text: str) -> bool | None:
    """Whether two texts are the same digits in the same base, where one of them names a base; else None.

    A base that one of them leaves out is the other's: `1011` is as good as `1011_2` where the base is known from the
    question, and the value in another base is no answer to a question that asks for one. A letter is no base.
    """
    wanted, given = numeral(gold), numeral(text)
    if _OPEN_BASE.fullmatch(text) and not _OPEN_BASE.fullmatch(gold):
        return False
    if wanted is None and given is None:
        return None
    if wanted is not None and given is not None:
        return wanted == given
    known, bare = (wanted, _BARE.fullmatch(text)) if wanted is not None else (given, _BARE.fullmatch(gold))
    return None if bare is None or known is None else known[0] == (bare[1].upper().lstrip("0") or "0")
