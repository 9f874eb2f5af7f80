"""Makes other values of the type and shape of an expected one, among which nothing tells which is expected.

An object that is asked whether it equals 5 is asked for 4, 6 and others too, in an order that only the judge knows. A
class is found to call all of its objects equal by objects that are made of other values than those of the tests.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import enum
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from os import urandom
from typing import Any

MANY = 10
EVERYTHING = "an object that equals whatever it is compared with, or most values like the expected one"
MADE_ALIKE = "an object that equals whatever is made like it"
BOTH = "an object that equals a value and does not"
_TRIES = 4
_FURTHER = 4
_FAR = 17
_OTHERS = 8
_MOST_ASKED = 1000
_APART = 3  # from one choice to the next
_NEARBY = (int, float, str, bool, type(None), bytes, tuple, list)
_HOLDING = (list, tuple, set, frozenset, dict)
_STEPS = (1, -1, 2, -2, 3, -3)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Made:
    """Remembers what tests make objects of, to find a class of the solution whose objects are all equal."""

    def __init__(self) -> None:
        self._rng = random.Random(urandom(8))
        self._made: dict[int, tuple[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {}
        self._asked: list[tuple[Any, Any]] = []

    def keep(self, value: Any, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Remembers what an object is made with; the object lives on, so that no other gets its id."""
        self._made[id(value)] = value, function, args, named

    def ask(self, left: Any, right: Any) -> None:
        """Remembers that tests ask whether two objects are equal."""
        if len(self._asked) < _MOST_ASKED:
            self._asked.append((left, right))

    def are_alike(self) -> bool:
        """Returns whether all objects of a class are equal by now.

        Asked about are those that the tests made of different values and do not compare themselves. If all of them are
        equal, new ones are made like those that the tests compare, of other values.
        """
        return any(self._is_alike(left, right) for left, right in self._asked[:_OTHERS])

    def _is_alike(self, left: Any, right: Any) -> bool:
        asked = {frozenset((id(one), id(other))) for one, other in self._asked}
        pool = [made[0] for made in self._made.values() if type(made[0]) is type(left)][:_OTHERS]
        pairs = [
            (one, other)
            for one, other in itertools.combinations(pool, 2)
            if frozenset((id(one), id(other))) not in asked and self._told(one) != self._told(other)
        ]
        if not pairs or not all(_is_equal(one, other) for one, other in pairs):
            return False
        others = [(left, make) for make in self._others(right)] + [(right, make) for make in self._others(left)]
        return bool(others) and all(_is_equal(one, make) for one, make in others)

    def _told(self, value: Any) -> Any:
        """Returns what a value is made of, without asking it."""
        if id(value) in self._made:
            _, function, args, named = self._made[id(value)]
            return id(function), self._told(args), self._told(named)
        if type(value) in _HOLDING:
            return [self._told(each) for each in (value.items() if type(value) is dict else value)]
        return value if type(value) in (int, float, str, bytes, bool) else id(value)

    def _others(self, value: Any) -> list[Callable[[], Any]]:
        """Returns what makes objects like one; nothing where one of its values has no other."""
        numbers = range(_OTHERS) if id(value) in self._made and self._can_change(value) else ()
        return [functools.partial(self._other, value, itertools.count(each, _APART), each < 2) for each in numbers]

    def _can_change(self, value: Any) -> bool:
        if id(value) in self._made:
            _, _, args, named = self._made[id(value)]
            return all(map(self._can_change, (*args, *named.values())))
        if type(value) in _HOLDING:
            return all(map(self._can_change, value.values() if type(value) is dict else value))
        return value is None or bool(_other_values(value, self._rng))

    def _other(self, value: Any, choices: Iterator[int], shorter: bool) -> Any:
        """Returns another value, with fewer parts if it is to be `shorter`; each choice is of one of its parts."""
        if id(value) in self._made:
            _, function, args, named = self._made[id(value)]
            given = [
                None if shorter and id(each) in self._made else self._other(each, choices, shorter) for each in args
            ]
            return function(*given, **{key: self._other(each, choices, shorter) for key, each in named.items()})
        kind, number = type(value), next(choices)
        if kind is dict:
            return {key: self._other(each, choices, shorter) for key, each in value.items()} or {number: number}
        if kind in _HOLDING:
            items = [self._other(each, choices, shorter) for each in value][: -1 if shorter else None]
            return kind(items if value else [number])
        others = _other_values(value, self._rng) or [0, 1, ""]
        return others[number % len(others)]


def _is_equal(one: Any, other: Any) -> bool:
    """Returns whether an object says that it equals another one, or what a function makes."""
    try:
        value = other() if isinstance(other, functools.partial) else other
        return value is not one and bool(one == value)
    except BaseException:
        return False


def _other_values(value: Any, rng: random.Random) -> list[Any]:
    """Returns other values of all kinds of a number, text or date; nothing for other types."""
    kind, others = type(value), list[Any]()
    if kind is bool:
        others = [not value]
    elif kind in (int, float) and value - value == 0:
        others = [value + 1, value - 1, value // 2, kind(0), value + 2, value + 7]
        others = [each for each in others if each >= 0 or value < 0]
    elif kind is str:
        letters = "".join(_other_character(each, rng) if each.isalnum() else each for each in value)
        others = [letters, letters, f"{value}{_chosen(_LETTERS)}", value[:-1], value[::-1], letters[: len(value) // 2]]
    elif kind is bytes:
        others = [value + b"a", value[:-1], value[::-1]]
    elif kind in (Decimal, Fraction, complex):
        others = [value + 1, value * 2, value - value]
    elif isinstance(value, enum.Enum):
        others = list(type(value))
    elif isinstance(value, (datetime.date, datetime.timedelta)):
        others = [value + datetime.timedelta(days, seconds) for days, seconds in ((1, 0), (40, 5000), (-400, 77))]
    return [each for each in others if each != value]


def candidates(expected: Any, rng: random.Random, count: int = MANY) -> tuple[list[Any], int]:
    """Returns values, the expected one among them, and its place.

    Each leads to the next one in small steps, and the expected one may be any of them: none is more likely than others.
    """
    values: list[Any]
    at = 0
    if type(expected) is bool:
        values = [expected, not expected]
    elif expected is None:
        values = [None, 0, "", False, [], "None"]
    elif type(expected) is int:
        at = rng.randrange(count)
        values = list(range(expected - at, expected - at + count))
    else:
        values, before = [expected], rng.randrange(count)
        for _ in range(count * _TRIES):
            other = near(values[0 if at < before else -1], rng)
            if len(values) < count and not any(type(value) is type(other) and value == other for value in values):
                values.insert(0 if at < before else len(values), other)
                at += at < before
    order = list(range(len(values)))
    rng.shuffle(order)
    return [values[place] for place in order], order.index(at)


def near(value: Any, rng: random.Random) -> Any:
    """Returns another value of the same type and shape, all of whose parts are changed."""
    kind = type(value)
    if kind is bool:
        return not value
    if kind is int:
        return value + rng.choice(_STEPS)
    if kind is float:
        return _other_float(value, rng)
    if kind is str:
        return _other_text(value, rng)
    if kind is bytes:
        return bytes((byte + rng.randint(1, 9)) % 256 for byte in value) or b"a"
    if kind in (list, tuple, set, frozenset):
        items = [near(item, rng) for item in value]
        return kind(items or [rng.randint(0, 9)])
    if kind is dict:
        return {key: near(item, rng) for key, item in value.items()} or {rng.randint(0, 9): rng.randint(0, 9)}
    if value is None:
        return rng.randint(0, 9)
    try:
        return value + kind(rng.randint(1, 9))
    except Exception:
        return rng.randint(0, 9)


def _other_float(value: float, rng: random.Random) -> float:
    """Returns another number with as many decimals, further off than any tolerance would be."""
    if value - value != 0:
        return 1.5
    text = repr(value)
    decimals = 0 if text.endswith(".0") else len(text.partition(".")[2]) if "e" not in text else 6
    step = rng.randint(1, 30) / (10 if decimals else 1) * max(1.0, 10.0 ** len(str(int(abs(value)))) / 100)
    return round(value + rng.choice((step, -step)), decimals)


def _other_text(text: str, rng: random.Random) -> str:
    """Returns a text of which each word has another letter or digit."""
    words = text.split(" ")
    for place, word in enumerate(words):
        if word:
            at = rng.randrange(len(word))
            words[place] = word[:at] + _other_character(word[at], rng) + word[at + 1 :]
    changed = " ".join(words)
    return changed if changed != text else text + rng.choice(_LETTERS)


def _other_character(character: str, rng: random.Random) -> str:
    if character.isdigit():
        return str((int(character) + rng.randint(1, 9)) % 10) if character.isascii() else "7"
    choice = rng.choice(_LETTERS.replace(character.lower(), ""))
    return choice.upper() if character.isupper() else choice


def around(value: Any) -> list[Any]:
    """Returns an amount above another and one below it, to which no small tolerance leads."""
    kind = type(value)
    if issubclass(kind, datetime.date):
        return [value + datetime.timedelta(_FAR), value - datetime.timedelta(_FAR + 1)]
    return [value + 3 * abs(value) + kind(_FAR), value - abs(value) // 2 - 1]


def _chosen(values: Sequence[Any]) -> Any:
    """Returns one of a few values, which no solution can know."""
    return values[urandom(1)[0] % len(values)]


def far(value: Any) -> Any:
    """Returns a value like another, from which no tolerance leads to it.

    Raises:
        TypeError: nothing is known of its type.
    """
    kind = type(value)
    if kind is bool:
        return not value
    if kind in (int, float):
        # What counts may loop for ever below 0, and for long where numbers are large.
        return value + kind((_FAR + 3 * abs(value)) * _chosen((1, 2) if value >= 0 else (1, 2, -1, -2)))
    if kind in (str, bytes):
        last = _chosen(_LETTERS)
        return value[::-1] + (last.encode() if kind is bytes else last)
    if kind in (list, tuple, set, frozenset):
        return kind([far(each) for each in value] or [_FAR])
    if kind is dict:
        return {key: far(each) for key, each in value.items()} or {_FAR: _FAR}
    if is_approximate(value):
        return like(value, far(value.expected))
    raise TypeError(kind.__name__)


def further(value: Any) -> list[Any]:
    """Returns values that are further and further from one, none where nothing is known of its type."""
    values: list[Any] = []
    with contextlib.suppress(TypeError):
        for _ in range(_FURTHER):
            values.append(far(values[-1] if values else value))
    return values


def nearby(value: Any) -> list[Any]:
    """Returns values like another, which cost an object as little: what counts up to one may loop for ever below 0."""
    rng = random.Random(urandom(8))
    values = [near(value, rng) for _ in range(_FURTHER)] if type(value) in _NEARBY else []
    return [abs(each) for each in values] if type(value) in (int, float) and value >= 0 else values


def sides(value: Any) -> list[Any]:
    """Returns a number that is a little larger than one, and one that is a little smaller."""
    step = 1 + abs(nearby(value)[0] - value) if type(value) in (int, float) else 0
    return [value + step, value - step - 1] if step else []


def is_approximate(value: Any) -> bool:
    """Returns whether `pytest.approx` made a value."""
    return type(value).__module__.startswith("_pytest") and hasattr(value, "expected")


def like(value: Any, expected: Any) -> Any:
    """Returns what stands for another expected value as a value does for its own."""
    if not is_approximate(value):
        return expected
    other = copy.copy(value)
    other.expected = expected
    return other


def middle(one: Any, other: Any) -> Any:
    """Returns what lies between two numbers, or lists of numbers."""
    if isinstance(one, (list, tuple)):
        return type(one)(map(middle, one, other))
    return (one + other) / 2
