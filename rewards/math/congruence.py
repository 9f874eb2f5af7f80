"""Reads congruences: `n \\equiv 5 \\pmod{12}` states the remainder 5, and `3 \\pmod 7` is 3.

Both sides of a congruence of two numbers hold for many numbers, so the right one counts only where it is a remainder.
"""

from __future__ import annotations

from grpo.plugins._pattern import lazy_pattern

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

    A modulus that one of them leaves out is the other's. Where the gold has none, the answer must be the remainder that
    the gold is.
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
    """The whole numbers that a text is, parted by commas; none for other texts."""
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
