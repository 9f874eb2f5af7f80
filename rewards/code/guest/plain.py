"""Writes plain data as JSON and reads it back, so that only plain data crosses between two sandboxes.

Exact built-in types cross with a tag each, and a few value types of the standard library. The reader trusts nothing: it
builds those types, imports and calls nothing that the writer names, and raises `Malformed` for everything else.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import datetime
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

DEEPEST = 250
MOST_VALUES = 2_000_000
MOST_BITS = 4_000_000
_SMALL = 2**53
_AS_THEY_ARE = frozenset({type(None), bool, str})
_GROUPS: dict[str, Any] = {"l": list, "t": tuple, "s": set, "z": frozenset, "q": deque}
_MAPPINGS: dict[str, Any] = {"d": dict, "C": Counter, "O": OrderedDict, "u": defaultdict}
_TAGS = {kind: tag for tag, kind in (*_GROUPS.items(), *_MAPPINGS.items())}
_CLOCK: dict[str, tuple[Any, str]] = {
    "date": (datetime.date, "year month day"),
    "time": (datetime.time, "hour minute second microsecond"),
    "datetime": (datetime.datetime, "year month day hour minute second microsecond"),
    "timedelta": (datetime.timedelta, "days seconds microseconds"),
}
_CLOCK_TAGS = {kind: tag for tag, (kind, _) in _CLOCK.items()}
_BASES = (bool, int, float, complex, str, bytes, bytearray, tuple, list, set, frozenset, dict, deque)
_VIEWS: dict[type, str] = {type({}.keys()): "K", type({}.values()): "V", type({}.items()): "P"}


class NotPlain(Exception):
    """A value is no plain data, or is too deep or too large to cross."""


class Malformed(Exception):
    """What was received is not a value."""


def encode(value: Any, *, convert: bool = False) -> Any:
    """Returns a value as JSON can hold it.

    Args:
        value: the value.
        convert: subclasses of plain types cross as the data that they hold, and iterators as their items.

    Raises:
        NotPlain: it is no plain data, too deep or too large.
    """
    left = [MOST_VALUES]

    def write(value: Any, depth: int) -> Any:
        left[0] -= 1
        if depth > DEEPEST or left[0] < 0:
            raise NotPlain("a value that is too deep or too large")
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
        if kind in _TAGS:
            tag = _TAGS[kind]
            if tag in _GROUPS:
                return [tag, *[write(item, depth + 1) for item in value]]
            if kind is defaultdict and not convert:
                raise NotPlain("a defaultdict")
            return [tag, *[write(part, depth + 1) for pair in value.items() for part in pair]]
        if kind is bytes or kind is bytearray:
            return ["b" if kind is bytes else "y", value.hex()]
        if kind is complex:
            return ["c", repr(value.real), repr(value.imag)]
        if kind is range:
            return ["r", *[write(part, depth + 1) for part in (value.start, value.stop, value.step)]]
        if kind is Decimal:
            return ["D", str(value)]
        if kind is Fraction:
            return ["F", write(value.numerator, depth), write(value.denominator, depth)]
        if kind in _VIEWS:
            return [_VIEWS[kind], *[write(item, depth + 1) for item in value]]
        if kind in _CLOCK_TAGS and type(getattr(value, "tzinfo", None)) in (type(None), datetime.timezone):
            tag = _CLOCK_TAGS[kind]
            zone = [value.utcoffset().total_seconds()] if getattr(value, "tzinfo", None) else []
            return [tag, *[getattr(value, name) for name in _CLOCK[tag][1].split()], *zone]
        if convert:
            return write(_held(value), depth + 1)
        raise NotPlain(f"an object of the class {kind.__name__}")

    return write(value, 0)


def _held(value: Any) -> Any:
    """Returns the plain data that a value of another class holds or yields."""
    kind = type(value)
    base: Any
    for base in _BASES:
        if issubclass(kind, base):
            if base is deque or issubclass(base, (list, tuple, set, frozenset)):
                return base(base.__iter__(value))
            return dict(dict.items(value)) if base is dict else base.__new__(base, _raw(value, base))
    if kind.__module__ == "collections" and hasattr(value, "data"):
        return value.data
    if hasattr(kind, "__iter__") or (hasattr(kind, "__getitem__") and hasattr(kind, "__len__")):
        if hasattr(kind, "keys"):
            return {key: value[key] for key in value}
        items = []
        for item in value:
            items.append(item)
            if len(items) > MOST_VALUES:
                raise NotPlain("an iterator without end")
        return items
    raise NotPlain(f"an object of the class {kind.__name__}")


def _raw(value: Any, base: Any) -> Any:
    """Returns what an instance of a subclass of an atomic type holds, past its own methods."""
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    if base is complex:
        return complex(complex.real.__get__(value), complex.imag.__get__(value))
    return str.__str__(value) if base is str else bytes(memoryview(value))


def decode(wire: Any) -> Any:
    """Returns the value of what `encode` wrote.

    Raises:
        Malformed: it is nothing that `encode` writes.
    """
    try:
        return _read(wire, 0)
    except Malformed:
        raise
    except Exception as error:
        raise Malformed(f"{type(error).__name__} in a value") from error


def _read(wire: Any, depth: int) -> Any:
    if depth > DEEPEST + 2:
        raise Malformed("a value that is too deep")
    if wire is None or type(wire) in (bool, int, float, str):
        return wire
    if type(wire) is not list or not wire or type(wire[0]) is not str:
        raise Malformed("no tagged value")
    tag, parts = wire[0], wire[1:]
    if tag in _GROUPS:
        return _GROUPS[tag]([_read(part, depth + 1) for part in parts])
    if tag in _MAPPINGS:
        read = [_read(part, depth + 1) for part in parts]
        pairs = dict(zip(read[::2], read[1::2], strict=True))
        if tag == "u":
            return defaultdict(None, pairs)
        return _MAPPINGS[tag](pairs)
    if tag in _VIEWS.values():
        items = [_read(part, depth + 1) for part in parts]
        if tag == "V":
            return dict(enumerate(items)).values()
        return dict.fromkeys(items).keys() if tag == "K" else dict(items).items()
    if tag in _CLOCK:
        names = _CLOCK[tag][1].split()
        zone = (
            {"tzinfo": datetime.timezone(datetime.timedelta(seconds=parts[len(names)]))} if parts[len(names) :] else {}
        )
        return _CLOCK[tag][0](**dict(zip(names, map(_whole, parts[: len(names)]), strict=True)), **zone)
    if tag in ("b", "y"):
        [text] = parts
        return (bytes if tag == "b" else bytearray).fromhex(text)
    if tag == "i":
        [text] = parts
        if len(text) > MOST_BITS // 4 + 8:
            raise Malformed("a number with too many digits")
        return int(text, 16)
    if tag == "f":
        [text] = parts
        return {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}[text]
    if tag == "c":
        return complex(*(float(part) for part in parts))
    if tag == "r":
        return range(*(_whole(_read(part, depth + 1)) for part in parts))
    if tag == "D":
        [text] = parts
        return Decimal(text)
    if tag == "F":
        return Fraction(*(_whole(_read(part, depth + 1)) for part in parts))
    raise Malformed(f"the tag {tag!r}")


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise Malformed("no whole number")
    return number
