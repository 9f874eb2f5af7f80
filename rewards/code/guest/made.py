"""Finds a class of the solution all of whose objects are equal, by what tests make of other values.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import deque
from collections.abc import Callable
from os import urandom
from typing import Any

from grpo.rewards.code.guest.customs import MODULE
from grpo.rewards.code.guest.soft import altered

MADE_ALIKE = "an object that equals whatever is made like it"
_OTHERS = 8
_MOST_ASKED = 1000
_HOLDING = (list, tuple, set, frozenset, dict, deque)


def making() -> tuple[dict[str, Any], Callable[[], bool]]:
    """Returns what tests call to make objects of the solution and to compare, and whether all objects are equal.

    Asked about are those that the tests made of different values and do not compare themselves. If all of them are
    equal, new ones are made like those that the tests compare, of other values.
    """
    rng = random.Random(urandom(8))
    made: dict[int, tuple[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {}  # by ids, of what lives on
    asked: list[tuple[Any, Any]] = []

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def made_by(*args: Any, **named: Any) -> Any:
            result = function(*args, **named)
            if type(result).__module__ == MODULE:
                made[id(result)] = result, function, args, named
            return result

        made_by.__name__ = str(getattr(function, "__name__", ""))
        return made_by

    def ask(left: Any, right: Any) -> None:
        if len(asked) < _MOST_ASKED:
            asked.append((left, right))
            if type(left) is type(right) and type(left) in _HOLDING:
                parts = (left.values(), right.values()) if type(left) is dict else (left, right)
                for pair in zip(*parts, strict=False):
                    ask(*pair)

    def alike(left: Any, right: Any) -> Any:
        ask(left, right)
        return left == right

    def among(item: Any, holder: Any) -> bool:
        for each in holder if type(holder) in _HOLDING else ():
            ask(item, each)
        return item in holder

    def told(value: Any) -> Any:
        """Returns what a value is made of, without asking it."""
        if id(value) in made:
            _, function, args, named = made[id(value)]
            return id(function), told(args), told(named)
        if type(value) in _HOLDING:
            return [told(each) for each in (value.items() if type(value) is dict else value)]
        return value if type(value) in (int, float, str, bytes, bool) else id(value)

    def other(value: Any, trial: int) -> Any:
        """Returns another value, all of whose parts are changed, or none of them is left; raises TypeError for none."""
        if id(value) in made:
            _, function, args, named = made[id(value)]
            given = [other(each, trial) for each in args]
            return function(*given, **{key: other(each, trial) for key, each in named.items()})
        if value is None or (trial == 0 and type(value) in (*_HOLDING, int, float, str, bytes)):
            return value and type(value)()
        if value and type(value) is dict:
            return {key: other(each, trial) for key, each in value.items()}
        if value and type(value) in _HOLDING:
            return type(value)([other(each, trial) for each in value])
        return altered(value, rng, trial, trial > _OTHERS // 2)

    def is_alike(left: Any, right: Any) -> bool:
        pairs = {frozenset((id(one), id(two))) for one, two in asked}
        pool = [each[0] for each in made.values() if type(each[0]) is type(left)][:_OTHERS]
        unasked = [
            (one, two)
            for one, two in itertools.combinations(pool, 2)
            if frozenset((id(one), id(two))) not in pairs and told(one) != told(two)
        ]
        if not unasked or not all(_is_equal(one, two) is True for one, two in unasked):
            return False
        both = [(one, like) for one, like in ((left, right), (right, left)) if id(like) in made]
        answers = [
            _is_equal(one, functools.partial(other, like, trial)) for one, like in both for trial in range(_OTHERS)
        ]
        return True in answers and False not in answers

    def are_alike() -> bool:
        return any(is_alike(left, right) for left, right in asked[:_OTHERS])

    return {"__making__": make, "__alike__": alike, "__among__": among}, are_alike


def _is_equal(one: Any, other: Any) -> bool | None:
    """Returns whether an object says that it equals another one, or what a function makes; None where it makes none."""
    try:
        value = other() if isinstance(other, functools.partial) else other
    except BaseException:
        return None
    try:
        return value is not one and bool(one == value)
    except BaseException:
        return False
