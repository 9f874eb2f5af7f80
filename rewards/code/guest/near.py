"""Makes other values of the type and shape of an expected one, which cannot be told from it.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

ALTERED = "it passes this test, too, when another value is expected"
NEAR = (0, 3, 4)
"""The trials, of six, of values near an expected one: as many as the others, of odd steps and of even ones each."""
_FAR = 17
_PRIMES = 2 * 3 * 5 * 7
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def near(value: Any, rng: random.Random, trial: int, signed: bool = False) -> Any:
    """Returns another value of the same type and shape, in one of whose parts a little is changed.

    Numbers of even trials are off by an odd number, those of odd trials by an even one, and no trial more often than
    these by a multiple of another: an object that is a remainder equals half of them at most. `signed` numbers lie on
    both sides of the expected one. Raises TypeError for an unknown type.
    """
    kind = type(value)
    sign = (1 if trial % 4 else -1) if signed else rng.choice((1, -1))
    if kind is int:
        step = rng.choice((2, 4, 8) if trial % 2 else (1, 5, 7))
        return value + (step if 0 <= value < step and not signed else sign * step)
    if kind is float:
        return _other_float(value, rng, sign)
    if kind is str:
        return _other_text(value, rng)
    return _changed(value, rng, lambda part: near(part, rng, trial))


def far(value: Any, rng: random.Random, trial: int, most: float = 0, signed: bool = False) -> Any:
    """Returns a value like another, from which no tolerance leads to it that is below `most`; see `near`."""
    kind = type(value)
    if kind in (int, float):
        if value - value != 0:
            return kind(1.5)
        step = (_FAR + 3 * abs(value) + 3 * most) * rng.uniform(1, 4)
        step = (int(step) // _PRIMES * _PRIMES + _PRIMES + 1) * (1 + trial % 2)
        is_below = trial % 2 if signed else value < 0 and rng.random() < 0.5
        return value + kind(-step if is_below else step)
    if kind is str:
        return value[::-1] + rng.choice(_LETTERS) + rng.choice(_LETTERS)
    return _changed(value, rng, lambda part: far(part, rng, trial, most))


def _changed(value: Any, rng: random.Random, change: Any) -> Any:
    kind = type(value)
    if kind is bool:
        return not value
    if kind is bytes:
        return value + bytes([rng.randint(97, 122)])
    if kind is complex:
        return value + rng.randint(17, 99)
    if kind in (list, tuple, deque):
        value = list(value)
        at = rng.randrange(len(value)) if value else 0
        return kind([*value[:at], change(value[at]) if value else 0, *value[at + 1 :]])
    if kind in (set, frozenset):
        items = sorted(value, key=repr)
        other = kind([*items[1:], change(items[0]) if items else 0])
        return other if other != value else kind([*items, rng.randint(10**6, 10**9)])
    if kind is dict:
        key = rng.choice(list(value)) if value else 0
        return {**value, key: change(value[key]) if value else 0}
    if value is None:
        raise TypeError("None")
    try:
        return value + kind(rng.randint(17, 99))
    except Exception as error:
        raise TypeError(kind.__name__) from error


def _other_float(value: float, rng: random.Random, sign: int) -> float:
    """Keeps the number of decimals; is further off than any usual tolerance."""
    if value - value != 0:
        return 1.5
    text = repr(value)
    decimals = 0 if text.endswith(".0") else len(text.partition(".")[2]) if "e" not in text else 6
    step = rng.randint(1, 30) / (10 if decimals else 1) * max(1.0, 10.0 ** len(str(int(abs(value)))) / 100)
    return round(value + sign * step, decimals)


def _other_text(text: str, rng: random.Random) -> str:
    changed = "".join(_other_character(each, rng) if each.isalnum() else each for each in text)
    return changed if changed != text else text + rng.choice(_LETTERS)


def _other_character(character: str, rng: random.Random) -> str:
    if character.isdigit():
        return str((int(character) + rng.randint(1, 9)) % 10) if character.isascii() else "7"
    choice = rng.choice(_LETTERS.replace(character.lower(), ""))
    return choice.upper() if character.isupper() else choice
