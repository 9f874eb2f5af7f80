"""Is an object equal to this, and to this alone? A value in, others like it out.

Theory of operation. Where tests make an object and compare it with plain data, as in `Money(5) == 5`, only its class
can say whether it is equal, and a class may agree with whatever it is asked. So it is asked for the value and for
others of the same kind, in no order: one that tells them apart is believed.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import random
import secrets
from typing import Any

COUNT = 12
MOST_AGREED = 3
"""An object that is equal to more of the others than this is equal to anything."""
_DEEPEST = 4


def shuffled(value: Any) -> tuple[list[Any], int]:
    """Returns a value among others like it, and its place."""
    draw = random.Random(secrets.token_bytes(16))
    others = [_other(value, draw, 0) for _ in range(COUNT)]
    place = draw.randrange(COUNT + 1)
    return [*others[:place], value, *others[place:]], place


def _other(value: Any, draw: random.Random, depth: int) -> Any:
    """Returns another value of the same kind."""
    kind = type(value)
    if kind is bool:
        return draw.randrange(2, 1000)
    if kind is int:
        return value + draw.choice((-1, 1)) * draw.randrange(1, 2 + 3 * abs(value) + 1000)
    if kind is float or kind is complex:
        return value * draw.uniform(1.5, 4.0) + draw.uniform(0.5, 9.0)
    if kind is str:
        letters = value or "abc"
        return "".join(draw.choice(letters + "aeikmnrstz") for _ in range(len(value) + draw.randrange(1, 3)))
    if kind is bytes:
        return value + draw.randbytes(draw.randrange(1, 4))
    if kind in (list, tuple) and depth < _DEEPEST:
        items = [_other(item, draw, depth + 1) for item in value]
        return kind([*items, draw.randrange(1000)] if draw.random() < 0.5 or not items else items)
    if kind in (set, frozenset):
        return kind({*value, draw.randrange(1000, 9999)})
    if kind is dict:
        return {**value, f"key {draw.randrange(1000)}": draw.randrange(1000)}
    return draw.randrange(1000, 9999)
