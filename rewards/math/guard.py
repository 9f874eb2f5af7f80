"""Refuses expressions that would hang or exhaust computer algebra, judged by their text alone."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

LONGEST = 4000
"""Characters of an expression that are looked at, and at most compared."""

_LARGEST_EXPONENT = 10_000
_MOST_DIGITS = 400
_LARGEST_FACTORIAL = 3000
_DEEPEST = 40
_DEEPEST_RADICAL = 5
_TALLEST = 8

_DIGITS = lazy_pattern(rf"\d{{{_MOST_DIGITS + 1}}}|(?:[,\s]\d{{3}}(?!\d)){{{_MOST_DIGITS // 3 + 1}}}")
_POWER = lazy_pattern(r"\^|\*\*")
_TOWER = lazy_pattern(rf"(?:(?:\^|\*\*)[\s{{(]*+\\?\w{{1,20}}\s*+){{{_TALLEST + 1}}}")
_FACTORIAL = lazy_pattern(r"([\d.,]*)\s*[)}\]]*\s*!(?!=)(\s*[)}\]]*\s*!(?!=))?")
_SCIENTIFIC = lazy_pattern(r"\d\s?[eE]\s?\+?(\d{5,})")
_BINOMIAL = lazy_pattern(r"\\[dt]?binom\s*\{?\s*(\d{5,})")
_NUMBER = lazy_pattern(r"\d+")
_CLOSERS = {"{": "}", "(": ")", "[": "]"}


def hostile(expression: str) -> str | None:
    """Returns why an expression is not handed to computer algebra, or None when nothing speaks against it."""
    if len(expression) > LONGEST:
        return f"the expression has more than {LONGEST} characters"
    if _DIGITS.search(expression):
        return f"a number has more than {_MOST_DIGITS} digits"
    if any(int(match[1]) > _LARGEST_EXPONENT for match in _SCIENTIFIC.finditer(expression)):
        return "the exponent of a number is too large"
    if _TOWER.search(expression):
        return f"powers are stacked more than {_TALLEST} high"
    if any(_exponent(expression, match.end()) > _LARGEST_EXPONENT for match in _POWER.finditer(expression)):
        return f"an exponent is larger than {_LARGEST_EXPONENT}"
    if _BINOMIAL.search(expression) or any(_large_factorial(match) for match in _FACTORIAL.finditer(expression)):
        return "a factorial or binomial is too large"
    if _depth(expression) > _DEEPEST:
        return f"brackets are nested more than {_DEEPEST} deep"
    if _radical_depth(expression) > _DEEPEST_RADICAL:
        return f"radicals are nested more than {_DEEPEST_RADICAL} deep"
    return None


def _exponent(text: str, start: int) -> int:
    """A bound of the exponent that begins there: numbers multiplied, powers raised, capped."""
    group = _group(text, start)
    if re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", group)):
        return max(map(int, _NUMBER.findall(group)), default=1)
    if "!" in group:
        return _LARGEST_EXPONENT + 1
    size = 1
    for base, power in re.findall(r"(\d+)(?:\s*[)}]*\s*(?:\^|\*\*)\s*[{(]*\s*(\d+))?", group):
        size *= max(1, _raised(int(base), int(power or "1")))
        if size > _LARGEST_EXPONENT:
            break
    return size


def _raised(base: int, power: int) -> int:
    if base < 2:
        return 1
    return base**power if power * base.bit_length() < 64 else _LARGEST_EXPONENT + 1


def _group(text: str, start: int) -> str:
    """What follows a power sign: a bracketed group or a number, with further powers of it."""
    position = start
    while True:
        while position < len(text) and text[position] in " -+":
            position += 1
        if position < len(text) and text[position] in _CLOSERS:
            position = _closing(text, position)
        else:
            word = re.compile(r"\\?[a-zA-Z]+|\d+|.?", re.DOTALL).match(text, position)
            position = word.end() if word else position
        following = re.compile(r"\s*(?:!(?!=)|\^|\*\*)").match(text, position)
        if following is None:
            return text[start:position]
        position = following.end()


def _closing(text: str, start: int) -> int:
    opening, closing = text[start], _CLOSERS[text[start]]
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == opening) - (text[position] == closing)
        if depth == 0:
            return position + 1
    return len(text)


def _large_factorial(match: re.Match[str]) -> bool:
    if match[2]:
        return True
    digits = match[1].replace(",", "").split(".")[0]
    return bool(digits) and int(digits) > _LARGEST_FACTORIAL


def _depth(text: str) -> int:
    highest = lowest = depth = 0
    for character in text:
        depth += (character in "{([") - (character in "})]")
        highest, lowest = max(highest, depth), min(lowest, depth)
    return highest - lowest


def _radical_depth(text: str) -> int:
    deepest = depth = 0
    ends: list[int] = []
    for match in re.finditer(r"\\sqrt\s*(?:\[[^\[\]]*\])?\s*(?=\{)|\bsqrt\s*(?=\()", text):
        while ends and match.end() >= ends[-1]:
            ends.pop()
        ends.append(_closing(text, match.end()))
        depth = len(ends)
        deepest = max(deepest, depth)
    return deepest
