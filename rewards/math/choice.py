"""Reads which letter or letters an answer to a multiple-choice question names."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.answer import MARKUP, Statement

_LETTER = lazy_pattern(r"\(?([A-Z])\)?")
_SMALL = lazy_pattern(r"[\s$*]*\(?([a-z])[).]?[\s$*.]*")
_CHOICE = lazy_pattern(r"(?<![A-Za-z0-9\\'])\(?([A-Z])\)?(?![A-Za-z0-9'])", re.ASCII)
_CUE = lazy_pattern(
    r"(?:\banswers?|\b(?:correct|right|best) (?:option|choice)s?)\b[^.\n]{0,40}?"
    r"(?:\b(?:is|are|must be|should be|would be)\b|:)|\b(?:choose|pick)\b|\u9009\u9879?",
    re.IGNORECASE,
)
_LEADING = lazy_pattern(r"\W*(?:[A-Za-z]{2,}\W+){0,3}")
_FILLER = lazy_pattern(r"\b(?:so|thus|therefore|hence|the|option|choice|answer|letter)\b", re.IGNORECASE)
_NOT = lazy_pattern(
    r"(?:\b(?:can)?not|n['\u2019]t|\bneither|\bnor|\bnever|\u4e0d\u662f|\u4e0d)"
    r"\W{0,3}(?:(?:be|the|an?|answer|option|choice)\W{1,3}){0,3}\Z",
    re.IGNORECASE,
)
_OFFERED = lazy_pattern(
    r"[\s,;|&)*$]*(?:/|\b(?:or|and|vs|versus|unless|otherwise|else|maybe|perhaps|possibly)\b|\u6216|(?<![.!?])[\s,;|&(*$]*[A-Z](?![A-Za-z0-9']))"
)
_SEVERAL = lazy_pattern(r"(?:[\s,;&/()*$'\"\[\]{}]|\band\b|[A-J](?![a-z]))+\.?")
_PLURAL = lazy_pattern(r"\b(?:options|choices|answers|statements)\b(?=\W+[A-J]\b)", re.IGNORECASE)
_JOINING = lazy_pattern(r"\band\b|[^A-J]")
_UNCHOSEN_BEFORE = lazy_pattern(
    r"(?:\b(?:except|but|exclud(?:e|ing)|eliminat(?:e|ing)|reject(?:ing)?|discard(?:ing)?|rule\s+out|ruling\s+out|either"
    r"|neither|avoid)\b|[~!\u00ac])\W*(?:(?:the|an?|option|choice|answer|letter)\W+)*\Z",
    re.IGNORECASE,
)
_UNCHOSEN_AFTER = lazy_pattern(
    r"[)\s$*]*(?:\?\s*\Z|minus\b|(?:is|was|seems|looks|would\s+be|can(?:not|['\u2019]t)\s+be)\s+(?:[a-z]+ly\s+)?(?:an?\s+)?"
    r"(?:wrong|incorrect|false|not|trap|tempting|distractor|impossible|ruled\s+out|eliminated|excluded)\b)",
    re.IGNORECASE,
)
_EDGE = ".!?\n:;"


def gold_letter(gold: str) -> str | None:
    """Returns the letter of a gold that is one capital letter, such as "B", "(B)" or "\\text{(B)}"; else None."""
    match = _LETTER.fullmatch(gold)
    return match[1] if match else None


def gold_letters(gold: str) -> frozenset[str] | None:
    """Returns the letters of a gold that is several of them, such as "AC", "A, C", "(A) and (C)" or "['A', 'C']"."""
    return None if "/" in gold else _letters(gold)


def chosen_letters(prediction: Statement) -> frozenset[str] | None:
    """Returns the letters that a statement chooses; None for fewer than two, or anything else.

    In prose they directly follow the last "the answers are", or are all of the last line.
    """
    if prediction.parts:
        return _letters(", ".join(prediction.parts))
    text = MARKUP.sub(r" \1 ", prediction.text)
    cues = list(_CUE.finditer(text)) or list(_PLURAL.finditer(text))
    if not cues:
        return _letters(text.rstrip().rpartition("\n")[2])
    match = _SEVERAL.match(text, cues[-1].end())
    return None if match is None or _OFFERED.match(text, match.end()) else _letters(match[0])


def _letters(text: str) -> frozenset[str] | None:
    text = MARKUP.sub(r" \1 ", text).strip()
    letters = _JOINING.sub("", text) if _SEVERAL.fullmatch(text) else ""
    return frozenset(letters) if len(letters) == len(set(letters)) > 1 else None


def chosen_letter(prediction: Statement) -> str | None:
    """Returns the letter that a statement chooses, or None when it chooses none or several.

    A marked answer must hold one letter alone, in any case. In prose it directly follows the last "the answer is", else
    it is the last that begins or ends a sentence; denied ("not A") or offered ("A or B") letters do not count.
    """
    text = MARKUP.sub(r" \1 ", prediction.parts[-1] if prediction.parts else prediction.text)
    small = _SMALL.fullmatch(text)
    if small and len(prediction.parts) < 2:
        return small[1].upper()
    choices = [match for match in _CHOICE.finditer(text) if not _unchosen(text, match)]
    if prediction.parts:
        letters = {match[1] for match in choices}
        return letters.pop() if len(letters) == 1 and not re.search(r"\b(?:or|and)\b", text) else None
    cues = list(_CUE.finditer(text))
    small = _SMALL.fullmatch(text, cues[-1].end()) if cues else None
    if small and not prediction.parts:
        return small[1].upper()
    if cues and any(match.start() >= cues[-1].end() for match in choices):
        after = next(match for match in choices if match.start() >= cues[-1].end())
        between = text[cues[-1].end() : after.start()]
        direct = _LEADING.fullmatch(between) and not re.search(r",|\b(?:or|and)\b", between)
        return after[1] if direct and not _OFFERED.match(text, after.end()) else None
    edges = [match for match in choices if match[1] != "I" and _at_edge(text, match)]
    if not edges or _OFFERED.match(text, edges[-1].end()) or _follows_another(text, edges[-1], choices):
        return None
    return edges[-1][1]


def _unchosen(text: str, match: re.Match[str]) -> bool:
    """True for a letter that is denied, asked, left out or called wrong."""
    start = max(0, match.start() - 30)
    before = _NOT.search(text, start, match.start()) or _UNCHOSEN_BEFORE.search(text, start, match.start())
    return bool(before or _UNCHOSEN_AFTER.match(text, match.end()))


def _at_edge(text: str, match: re.Match[str]) -> bool:
    """True with nothing but marks between the letter and an end of its sentence."""
    before = max(text.rfind(mark, 0, match.start()) for mark in _EDGE)
    ends = [end for end in (text.find(mark, match.end()) for mark in _EDGE) if end >= 0]
    after = text[match.end() : min(ends, default=len(text))]
    leading = _FILLER.sub("", text[before + 1 : match.start()])
    return not any(map(str.isalnum, leading)) or not any(map(str.isalnum, after))


def _follows_another(text: str, match: re.Match[str], choices: list[re.Match[str]]) -> bool:
    earlier = [other for other in choices if other.end() <= match.start() and other[1] != match[1]]
    between = text[earlier[-1].end() : match.start()] if earlier else "none"
    return not re.sub(r"\b(?:or|and|vs|versus)\b|[\s,;/|&()*$.:]", "", between)
