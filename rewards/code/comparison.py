"""Compares what a program printed with what was expected. The whole output always counts.

- exact: the same bytes.
- trimmed: the same lines, but for blanks at the ends of lines and blank lines at the end.
- tokens: the same words, however they are set apart.
- float: like tokens; words that are numbers may differ by the tolerance, absolute or relative to the expected one.
"""

from __future__ import annotations

import math
from typing import Literal

from grpo.plugins._pattern import lazy_pattern

Comparison = Literal["exact", "trimmed", "tokens", "float"]

_NUMBER = lazy_pattern(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
_LONGEST_NUMBER = 400


def agrees(printed: bytes, expected: bytes, comparison: Comparison = "trimmed", tolerance: float = 1e-6) -> bool:
    """Returns whether the printed output is the expected one."""
    if comparison == "exact":
        return printed == expected
    if comparison == "trimmed":
        return _lines(printed) == _lines(expected)
    printed_words, expected_words = printed.split(), expected.split()
    if len(printed_words) != len(expected_words):
        return False
    if comparison == "tokens":
        return printed_words == expected_words
    return all(
        word == other or _near(word, other, tolerance)
        for word, other in zip(printed_words, expected_words, strict=True)
    )


def _lines(text: bytes) -> list[bytes]:
    lines = [line.rstrip() for line in text.replace(b"\r\n", b"\n").split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _near(word: bytes, expected: bytes, tolerance: float) -> bool:
    if max(len(word), len(expected)) > _LONGEST_NUMBER:
        return False
    if not _NUMBER.fullmatch(word) or not _NUMBER.fullmatch(expected):
        return False
    value, target = float(word), float(expected)
    return math.isfinite(value) and math.isfinite(target) and abs(value - target) <= tolerance * max(1.0, abs(target))
