"""JSON in a run that anybody may have made: text in, values out that can be walked, counted with and written again."""

from __future__ import annotations

import json
from typing import Any

LARGEST = 2**31 - 1  # of a step, of a group and of other whole numbers that are kept in 32 bits
DEEPEST = 200  # what is nested deeper cannot be written again without running out of stack
MOST_DIGITS = 300  # of a whole number; with more it is none of 64 bits with a point


def parsed(text: str, *, counted_with: bool = True) -> Any:
    """Returns what JSON holds; ValueError where it is none, nested too deeply, or has a number that is too large."""
    too_deep = f"it is nested more than {DEEPEST} deep"
    try:
        value = (_DECODER if counted_with else _ANY).decode(text)
    except RecursionError:
        raise ValueError(too_deep) from None
    if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
        raise ValueError(too_deep)
    return value


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)
_ANY = json.JSONDecoder()


def _depth(value: Any) -> int:
    """How many lists and objects stand in one another."""
    depth = -1
    level: list[Any] = [[value]]
    while level:
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for several in inner for one in several if isinstance(one, (list, dict))]
        depth += 1
    return depth
