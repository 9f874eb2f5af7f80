"""Writes plain data as JSON and reads it back, so that only plain data crosses between two sandboxes.

Exact built-in types cross with a tag each, and a few value types of the standard library. The reader trusts nothing: it
builds those types, imports and calls nothing that the writer names, and raises `Malformed` for everything else. This
module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import datetime
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from typing import Any

DEEPEST = 400
DEEPEST_ANSWER = 350  # so that what is too deep to be given is the tests' own
MOST_VALUES = 2_000_000
MOST_BITS = 4_000_000
_SMALL = 2**53
_AS_THEY_ARE = frozenset({type(None), bool, str})
_TEXTS = (str, bytes, bytearray)
_FACTORIES = (None, list, dict, set, int, float, str, tuple, bool)  # of a defaultdict
_CHANGEABLE = (list, dict, set, bytearray, deque, Counter, OrderedDict, defaultdict)
_NONE: Mapping[int, int] = {}
_BASES = (int, float, complex, *_TEXTS, tuple, list, set, frozenset, dict, deque)


class NotPlain(Exception):
    """A value is no plain data, or is too deep or too large to cross."""


class Foreign(NotPlain):
    """A value is too deep, or holds an object of a class that is none of plain data."""


class Malformed(Exception):
    """What was received is not a value."""


def _items(value: Any) -> list[Any]:
    return [part for pair in value.items() for part in pair]


def _has_known_factory(value: Any) -> bool:
    return any(value.default_factory is known for known in _FACTORIES)


def _pairs(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


# For each type its tag, what takes a value apart and what makes it of its parts again.
_KINDS: dict[type, tuple[str, Callable[[Any], Iterable[Any]], Callable[..., Any]]] = {
    list: ("l", iter, list),
    tuple: ("t", iter, tuple),
    set: ("s", iter, set),
    frozenset: ("z", iter, frozenset),
    deque: ("q", lambda value: [value.maxlen, *value], lambda parts: deque(parts[1:], parts[0])),
    dict: ("d", _items, _pairs),
    Counter: ("C", _items, lambda parts: Counter(_pairs(parts))),
    OrderedDict: ("O", _items, lambda parts: OrderedDict(_pairs(parts))),
    defaultdict: (
        "u",
        lambda value: [_FACTORIES.index(value.default_factory) if _has_known_factory(value) else 0, *_items(value)],
        lambda parts: defaultdict(_FACTORIES[parts[0]], _pairs(parts[1:])),
    ),
    type({}.keys()): ("K", iter, lambda parts: dict.fromkeys(parts).keys()),
    type({}.values()): ("V", iter, lambda parts: dict(enumerate(parts)).values()),
    type({}.items()): ("P", iter, lambda parts: dict(parts).items()),
    bytes: ("b", lambda value: [value.hex()], lambda parts: bytes.fromhex(*parts)),
    bytearray: ("y", lambda value: [value.hex()], lambda parts: bytearray.fromhex(*parts)),
    complex: ("c", lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    range: ("r", lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    Decimal: ("D", lambda value: [str(value)], lambda parts: Decimal(*parts)),
    Fraction: ("F", lambda value: [value.numerator, value.denominator], lambda parts: Fraction(*parts)),
    datetime.timedelta: (
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
}
for _clock in (datetime.date, datetime.time, datetime.datetime):
    _KINDS[_clock] = (
        _clock.__name__,
        lambda value: [value.isoformat()],
        lambda parts, kind=_clock: kind.fromisoformat(*parts),
    )
KINDS = (*_KINDS, *_AS_THEY_ARE, int, float)
"""The types of plain data."""
_MAKING = {tag: make for tag, _, make in _KINDS.values()}


def containers(values: Iterable[Any]) -> list[Any]:
    """Returns what can be changed in place in plain data, each time it stands there, in one order for both sides."""
    changeable: list[Any] = []
    waiting = [*values]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind in _CHANGEABLE:
            changeable.append(each)
        if kind in (list, tuple, deque):
            waiting.extend(each)
        elif kind in _CHANGEABLE and isinstance(each, dict):
            waiting.extend(each.values())
    return changeable


def encode(value: Any, *, convert: bool = False, known: Mapping[int, int] = _NONE) -> Any:
    """Returns a value as JSON can hold it; raises NotPlain for what is no plain data, too deep or too large.

    With `convert`, subclasses of plain types cross as the data that they hold, and iterators as their items. Of a
    container in it that is `known` by its id, the number crosses.
    """
    left = [MOST_VALUES]
    deepest = DEEPEST_ANSWER if convert else DEEPEST

    def write(value: Any, depth: int) -> Any:
        left[0] -= 1
        if depth > deepest:
            raise Foreign("a value that is too deep")
        if left[0] < 0:
            raise NotPlain("a value that is too large")
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is int:
            if -_SMALL < value < _SMALL:
                return value
            if value.bit_length() > MOST_BITS:
                raise NotPlain("a number with too many digits")
            return ["i", hex(value)]
        if kind is float:
            return value if value - value == 0 else ["f", repr(value)]
        if depth and id(value) in known:
            return ["@", known[id(value)]]
        if kind in _KINDS and (kind is not defaultdict or convert or _has_known_factory(value)):
            tag, parts, _ = _KINDS[kind]
            return [tag, *map(write, parts(value), repeat(depth + 1))]
        if convert:
            return write(_held(value), depth + 1)
        raise Foreign(f"an object of the class {kind.__name__}")

    return write(value, 0)


def _held(value: Any) -> Any:
    kind = type(value)
    base: Any
    for base in _BASES:
        if issubclass(kind, base):  # by its own methods, whatever those of the subclass say
            if base is dict:
                return dict(dict.items(value))
            if hasattr(base, "__pos__"):
                return base.__pos__(value)
            return base.__getitem__(value, slice(None)) if base in _TEXTS else base(base.__iter__(value))
    if kind.__module__ == "collections" and hasattr(value, "data"):
        return value.data
    has = {name for each in kind.__mro__ for name in vars(each)}  # and not its metaclass, as that of Enum has
    if "__iter__" in has or {"__getitem__", "__len__"} <= has:
        if "keys" in has:
            return {key: value[key] for key in value}
        items = []
        for item in value:
            items.append(item)
            if len(items) > MOST_VALUES:
                raise NotPlain("an iterator without end")
        return items
    raise Foreign(f"an object of the class {kind.__name__}")


def decode(wire: Any, deepest: int = DEEPEST, known: Sequence[Any] = ()) -> Any:
    """Returns the value of what `encode` wrote; raises Malformed for anything else. `known`: containers, by number."""
    try:
        return _read(wire, deepest, known)
    except Malformed:
        raise
    except Exception as error:
        raise Malformed(f"{type(error).__name__} in a value") from error


def _read(wire: Any, deepest: int, known: Sequence[Any]) -> Any:
    if deepest < 0:
        raise Malformed("a value that is too deep")
    if wire is None or type(wire) in (bool, int, float, str):
        return wire
    if type(wire) is not list or not wire or type(wire[0]) is not str:
        raise Malformed("no tagged value")
    tag, parts = wire[0], wire[1:]
    if tag in _MAKING:
        return _MAKING[tag]([*map(_read, parts, repeat(deepest - 1), repeat(known))])
    [text] = parts
    if tag == "@":
        return known[text]
    if tag == "i" and len(text) <= MOST_BITS // 4 + 8:
        return int(text, 16)
    if tag == "f":
        return {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}[text]
    raise Malformed(f"the tag {tag!r}")
