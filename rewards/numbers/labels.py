"""Reads answers that give each of several values a label: "a: 71, b: 72", "Tom 71, Ann 72", "71 for Tom, 72 for Ann".

Several labelled values are no answer where one is asked, unless one label says that it is the result ("April: 48, May:
24, total: 72"). Linear in the text, whose length the caller bounds.
"""

from __future__ import annotations

import itertools
import re

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.numbers.numerals import Number, numbers_in

_ENUMERATOR = lazy_pattern(
    r"(?:(?<![^\n,;(])|(?<=[\n,;]\s))\d{1,2}(?=[.)]\s)|(?<=\s)\d{1,2}(?=\)\s)|(?<=[^\W\d_]\s)\d{1,2}(?=\s?:\s)"
)
_WORDS = (
    r"(?!(?:or|and|about|approximately|roughly|that|which|but|not|then|plus|minus|times|is|are|equals)\b|i\.e)"
    r"(?:\\?[^\W\d_]{1,20}(?:_\{?\w{1,3}\}?)?(?:[ '\u2019-][^\W\d_]{1,20}){0,2})"
)
_OPENING = r"[$*({\[]{0,4}"
_UNIT = r"[)}\]*$%]{0,4}(?:\s[^\W\d_]{1,20}|%)?[)}\]*$.]{0,4}"
_PART = r"\s*(?:(?:[,;\n&/|]|\.\s|\s(?:and|or)\b)\s*){1,3}"
_LABEL = rf"[\s*_\"'-]{{0,6}}\(?{_WORDS}\)?[\"']?\s*(?:[:=).|]|\b(?:is|was)\b|->|\u2192)?[\s*]*{_OPENING}"
_FIRST = lazy_pattern(rf"\W{{0,6}}?{_LABEL}")
_NEXT = lazy_pattern(rf"{_UNIT}(?:{_PART}{_LABEL}|\s+\(?{_WORDS}\)?\s?[:=)]\s*{_OPENING})")
_LAST = lazy_pattern(rf"{_UNIT}[\s.!*|]*")
_BEHIND = rf"{_UNIT}\s(?P<by>for|in|at|on|to|from|by|with|if|when)\s{_WORDS}"
_NEXT_BEHIND = lazy_pattern(rf"{_BEHIND}{_PART}{_OPENING}")
_LAST_BEHIND = lazy_pattern(rf"{_BEHIND}[\s.!*]*")
_RESULT = lazy_pattern(
    r"\b(?:total|sum|altogether|answer|result|final(?:ly)?|solution|overall|combined|together|all|so|hence|thus|therefore)\b",
    re.IGNORECASE,
)


def labelled(content: str) -> tuple[Number, ...] | None:
    """Returns the numbers of a list of labelled values; the result alone where one label says so.

    `content`: a marked answer or the sentence behind a cue, after `plain_text`. None for other texts, and for equal
    values.
    """
    text = _ENUMERATOR.sub(lambda match: "n" * len(match[0]), content)
    numbers = list(numbers_in(text))
    if len({number.value for number in numbers}) < 2:
        return None
    gaps = [text[number.end : other.start] for number, other in itertools.pairwise(numbers)]
    head, tail = text[: numbers[0].start], text[numbers[-1].end :]
    if any(map(str.isalnum, head)):
        labels = [_FIRST.fullmatch(head), *map(_NEXT.fullmatch, gaps)] if _LAST.fullmatch(tail) else [None]
    else:
        labels = [*map(_NEXT_BEHIND.fullmatch, gaps), _LAST_BEHIND.fullmatch(tail)]
        labels = labels if len({label["by"] for label in labels if label is not None}) == 1 else [None]
    if None in labels:
        return None
    results = [
        number for label, number in zip(labels, numbers, strict=True) if label is not None and _RESULT.search(label[0])
    ]
    return tuple(results) if len(results) == 1 else tuple(numbers)
