"""Compares numerals with a base, congruences and ratios: `1011_2`, `5 \\pmod{12}`, `2:4:6`."""

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

    A missing base is the other's: `1011` is as good as `1011_2`, but the value in another base does not answer a
    question that asks for one. A letter is no base.
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


_TERM = r"(?!\s*0+(?:\.0+)?\s*:)[^:,;=<>]{0,59}[\w})][^:,;=<>]{0,20}"
_NAMES = lazy_pattern(r"\s*\\?[a-zA-Z]{1,8}(?:\s*:\s*\\?[a-zA-Z]{1,8}){1,9}\s*=")
_RATIO = lazy_pattern(rf"{_TERM}(?::{_TERM}){{2,9}}")
_COLON = lazy_pattern(
    r"\\(?:text|mathrm)\s?\{\s*(?:to|:)\s*\}|(?<=\s)to(?=\s)|\\colon(?![a-z])|\\mathbin\s?\{\s*:\s*\}|\{\s*:\s*\}"
)


def proportion(text: str) -> str | None:
    """Returns the terms of a ratio over its first one, as a tuple in LaTeX; None for any other text."""
    text = _NAMES.sub("", _COLON.sub(":", text).strip().strip("$"), count=1)
    if _RATIO.fullmatch(text) is None:
        return None
    first, *others = (term.strip() for term in text.split(":"))
    shares = (rf"\frac{{{other}}}{{{first}}}" for other in others)
    return f"({','.join(shares)})"


_WORD = r"(?:\\b?mod(?![a-z])|\\(?:text|mathrm|operatorname)\s?\{\s*mod\s*\}|\bmod(?:ulo)?\b)"
_BLANK = r"(?:\\[ ,;:]|\\q?quad(?![a-z])|[\s~,])*"
_CONGRUENCE = lazy_pattern(
    r"(?:(?P<left>.{1,200}?)\s*(?:\\equiv(?![a-z])|\u2261)\s*)?(?P<value>[^\u2261]{1,200}?)"
    rf"(?:{_BLANK}(?:\\pmod\s*\{{?\s*(?P<pmod>\d{{1,9}})\s*\}}?|(?:\\left)?\(\s*{_WORD}\s*\{{?\s*(?P<mod>\d{{1,9}})\s*\}}?\s*(?:\\right)?\)))?"
)
_LONGEST = 400
_WHOLE = lazy_pattern(r"\s*-?\d{1,18}\s*")
_LETTER = lazy_pattern(r"(?<![\\a-zA-Z])[a-zA-Z](?![a-zA-Z])")


def same_residue(gold: str, text: str) -> bool | None:
    """Whether two texts are the same remainder, where one of them is a congruence; None where that takes algebra.

    A missing modulus is the other's; if the gold has none, the answer must be the remainder itself.
    """
    gold_parts, answer_parts = _read(gold), _read(text)
    if gold_parts is None or answer_parts is None or not (gold_parts[2] or answer_parts[2]):
        return None
    moduli = {modulus for modulus in (gold_parts[3], answer_parts[3]) if modulus}
    wanted, given = _remainders(gold_parts[1]), _remainders(answer_parts[1])
    named = answer_parts[0] is not None and _LETTER.search(answer_parts[0]) is not None
    if not _reduced(given, answer_parts[3]) and (
        (answer_parts[0] and not named) or (given and answer_parts[3] and not gold_parts[2])
    ):
        return False
    if len(moduli) > 1 or not wanted or not given:
        return False if len(moduli) > 1 else None
    if wanted == given or not gold_parts[3]:
        return wanted == given
    modulus = int(gold_parts[3])
    rests = [{value % modulus for value in values} for values in (wanted, given)]
    return rests[0] == rests[1] and (bool(answer_parts[3]) or _reduced(given, gold_parts[3]))


def _remainders(text: str) -> frozenset[int]:
    values = text.split(",")
    return frozenset(map(int, values)) if all(map(_WHOLE.fullmatch, values)) else frozenset()


def _reduced(values: frozenset[int], modulus: str) -> bool:
    return bool(modulus and values) and all(abs(value) < int(modulus) for value in values)


def _read(text: str) -> tuple[str | None, str, bool, str] | None:
    """The left side, the value, whether it is a congruence at all, and the modulus or ""."""
    match = _CONGRUENCE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        return None
    modulus = match["pmod"] or match["mod"] or ""
    return match["left"], match["value"].strip(), bool(match["left"] or modulus), modulus
