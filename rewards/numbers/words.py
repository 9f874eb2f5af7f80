"""Reads a text that is one number in English words, such as "minus two thirds" or "three point five"."""

from __future__ import annotations

import re
from fractions import Fraction

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.numbers.chinese import chinese_number

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_BY_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ONES = {word: value for value, word in enumerate(_BELOW_TWENTY.split())}
_TENS = {word: 10 * n for n, word in enumerate(_BY_TENS.split(), 2)} | {"fourty": 40}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "halves": 2, "quarter": 4, "quarters": 4}
_PARTS |= {name: value for value, stem in enumerate(_ORDINALS.split(), 3) for name in (stem, f"{stem}s")}
_BEFORE_AND = ("hundred", *_SCALES)
_LONGEST = 120
_KNOWN = {*_ONES, *_TENS, *_SCALES, *_PARTS, "dozen", "hundred"}
_WORD = lazy_pattern(r"[a-z]+")
_OPEN = lazy_pattern(
    r"\d|[?:;,]|\b(?:or|not|no|never|if|unless|maybe|perhaps|possibly|might|may|could|at\s+(?:least|most)|about|first|second)\b|n['\u2019]t",
    re.IGNORECASE,
)
_STATED = lazy_pattern(
    r"\b(?:(?P<copula>is|are|was|were)|has|have|had"
    r"|equals?|gives?|needs?|takes?|costs?|gets?|makes?|buys?|bought|of\s+exactly)\s+(?:exactly\s+|only\s+|just\s+)?"
    r"(?=(?:minus\s+|negative\s+)?(?:" + "|".join((*_ONES, *_TENS, "half")) + r")\b)",
    re.IGNORECASE,
)
_SHAPE = lazy_pattern(r"[a-z]+(?:(?:\s+|-|\u2010|\u2011|,\s+)[a-z]+)*[.!]?", re.IGNORECASE)
_FIRST = lazy_pattern(
    r"\s*+(?:a|an|minus|negative|half|" + "|".join((*_ONES, *_TENS, "hundred", *_SCALES, "dozen")) + r")\b",
    re.IGNORECASE,
)


def spoken_number(text: str) -> Fraction | None:
    """Returns the number in words that is all of a text ("Seventy-two.", "a dozen", "negative two thirds"), or None."""
    if not text.isascii():
        return chinese_number(text.strip().removesuffix("\u3002"))
    if _FIRST.match(text) is None or len(text) > _LONGEST:
        return None
    text = text.strip()
    if _SHAPE.fullmatch(text) is None:
        return None
    words = _WORD.findall(text.lower())
    if words in (["a"], ["an"]):
        return None
    negative = words[0] in ("minus", "negative")
    value = _value(words[1:] if negative else words)
    return -value if negative and value is not None else value


def counted(sentence: str) -> Fraction | None:
    """Returns the one number in words that a sentence ends in stating: "So there are three solutions.", or None.

    A fraction may begin the sentence ("One fourth of the cake is left."). None for what is denied or left open.
    """
    if len(sentence) > _LONGEST or _OPEN.search(sentence):
        return None
    stated = _STATED.search(sentence)
    words = _WORD.findall(sentence[stated.end() :].lower()) if stated else _WORD.findall(sentence.lower())
    negative = words[:1] in (["minus"], ["negative"])
    words = words[negative:]
    ends = [at for at, word in enumerate(words) if word in _KNOWN]
    run = next((at for at, word in enumerate(words) if word not in _KNOWN and word != "and"), len(words))
    run -= bool(run and words[run - 1] == "and")
    if not run or ends[-1:] != [run - 1]:
        return None
    value = spoken_number(" ".join(words[:run]))
    if value is None or (stated is None and value.denominator == 1):
        return None
    value = -value if negative else value
    copula = stated is not None and stated["copula"] is not None
    return value if (words[run:] and (value != 1 or words[run] != "of")) or (copula and value != 1) else None


def _value(words: list[str]) -> Fraction | None:
    if "point" in words:
        return _decimal(words)
    if words and words[-1] in _PARTS:
        return _fraction(words)
    whole = _whole(words)
    return None if whole is None else Fraction(whole)


def _decimal(words: list[str]) -> Fraction | None:
    """Reads "three point one four": a whole number, then digits one by one."""
    at = words.index("point")
    whole = _whole(words[:at]) if at else 0
    digits = [_ONES.get(word, 10) for word in words[at + 1 :]]
    if whole is None or not digits or max(digits) > 9:
        return None
    return whole + Fraction(int("".join(map(str, digits))), 10 ** len(digits))


def _fraction(words: list[str]) -> Fraction | None:
    below = _PARTS[words[-1]]
    upper = words[:-1] or ["one"]
    if "and" in upper:
        at = len(upper) - 1 - upper[::-1].index("and")
        whole, above = _whole(upper[:at]), _whole(upper[at + 1 :])
    else:
        whole, above = 0, _whole(upper)
    return None if whole is None or above is None or not 0 < above < below else whole + Fraction(above, below)


def _whole(words: list[str]) -> int | None:
    """Counts below a thousand before falling scales, or so many dozens."""
    last = len(words) - 1
    words = [w for n, w in enumerate(words) if w != "and" or not (0 < n < last and words[n - 1] in _BEFORE_AND)]
    if words[-1:] != ["dozen"]:
        return _scaled(words, tuple(_SCALES)[::-1])
    if words[:-1] in (["half"], ["half", "a"]):
        return 6
    count = _below_thousand(words[:-1]) if len(words) > 1 else 1
    return 12 * count if count else None


def _scaled(words: list[str], scales: tuple[str, ...], *, one: bool = True) -> int | None:
    """Reads "two million five"; the largest of some scales may stand alone ("thousand") if `one`."""
    for below, scale in enumerate(scales, 1):
        if scale in words:
            at = words.index(scale)
            count = _below_thousand(words[:at]) if at else int(one)
            rest = _scaled(words[at + 1 :], scales[below:], one=False) if words[at + 1 :] else None
            return count * _SCALES[scale] + (rest or 0) if count and (rest or not words[at + 1 :]) else None
    return _below_thousand(words)


def _below_thousand(words: list[str]) -> int | None:
    if "hundred" in words:
        at = words.index("hundred")
        hundreds = _below_hundred(words[:at]) if at else 1
        rest = _below_hundred(words[at + 1 :]) if words[at + 1 :] else 0
        return None if not hundreds or rest is None else 100 * hundreds + rest
    return _below_hundred(words)


def _below_hundred(words: list[str]) -> int | None:
    if len(words) == 1:
        return 1 if words[0] in ("a", "an") else _ONES.get(words[0], _TENS.get(words[0]))
    if len(words) == 2 and words[0] in _TENS and 0 < _ONES.get(words[1], 0) < 10:
        return _TENS[words[0]] + _ONES[words[1]]
    return None
