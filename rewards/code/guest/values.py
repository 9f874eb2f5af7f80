"""The values that cross between two sandboxes: Python values in, plain JSON out, and back.

Theory of operation. Exact built-in types cross by value, each with a tag; what is neither plain data nor a type of the
standard library crosses as a reference, which the two ends resolve by their `refer` and `resolve`. The reader trusts
nothing: it builds values of exact types only, imports nothing, calls nothing that the writer names, and raises
`Malformed` for everything else. So an object with comparisons of its own never arrives, and no pickle is read.
Depth, digits and the number of values are capped.

This module runs inside sandboxes too: it needs the standard library alone, and its rarer modules only on demand.
"""

from __future__ import annotations

import builtins
import io
import sys
from collections import Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from types import MemberDescriptorType
from typing import Any, Protocol

Wire = Any

DEEPEST = 150
DEEPEST_GIVEN = 250
MOST_BITS = 4_000_000
MOST_VALUES = 2_000_000
MOST_SHARED, PLACES = 200, 8
_SMALL = 2**62
_SORTED = 500
_LINE = 20
_HEX = "0123456789abcdef-"


class Malformed(Exception):
    """What was received is not a value."""


class Unsendable(Exception):
    """A value is too deep, too large or of a kind that does not cross."""


TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, object)
}
TYPES |= {
    kind.__name__: kind for kind in vars(builtins).values() if type(kind) is type and issubclass(kind, BaseException)
}
TYPES["NoneType"] = type(None)
TYPES["Counter"], TYPES["OrderedDict"], TYPES["deque"] = Counter, OrderedDict, deque
DATA_METHODS = frozenset(
    name
    for kind in (str, bytes, list, tuple, dict, set, int, float, complex)
    for name in dir(kind)
    if not name.startswith("_")
)
"""What a test may ask of plain data by name; the solution's objects do not answer to these names."""
_TYPE_NAMES = {kind: name for name, kind in TYPES.items()}
_CONTAINERS = frozenset({list, dict, set, deque, Counter, OrderedDict, defaultdict, io.StringIO, io.BytesIO})
_MAPPINGS: dict[str, Any] = {"d": dict, "C": Counter, "O": OrderedDict, "u": defaultdict}
_SUBCLASSED = (int, float, complex, str, bytes, bytearray, tuple, list, set, frozenset, dict, deque)
_CHANGING = (list, dict, set, bytearray, deque)
_CLOCK = ("date", "datetime", "time", "timedelta")
_MEMBERS: dict[tuple[str, str, Any], Any] = {}
_MEMBER_NAMES: dict[type, tuple[str, Any]] = {}
VALUES = (bool, int, float, str, bytes, complex, tuple, frozenset, type(None))
"""What cannot change in place."""
_VIEWS: dict[type, str] = {type({}.keys()): "K", type({}.values()): "V", type({}.items()): "P"}


class Owner(Protocol):
    """What a codec needs to know of objects that are data too, and have methods of their own."""

    def number_of(self, value: Any) -> tuple[int, list[str]] | None:
        """Returns the number of such an object, and how it tells of itself as no data does; None for mere data."""

    def numbered(self, number: Any, texts: Any, wire: Wire, plain: Any) -> Any:
        """Returns the object of that number, which holds `plain`."""


class Codec:
    """Writes and reads values.

    Args:
        refer: makes the wire form of something that is no plain data, for this codec; raises `Unsendable` when it
            will not.
        resolve: makes a value of a wire form with an unknown tag; raises `Malformed`.
        shared: names of the classes that both ends define; a member of such an enumeration crosses by its name.
        trusted: this is the end of the tests, which may write deeper values (`DEEPEST_GIVEN`) than they read
            (`DEEPEST`), as an argument may hold an answer.
        owner: knows the objects that are data and more; None where there are none.

    Attributes:
        containers: what was last written or read and can be changed, in the order in which it came.
    """

    def __init__(
        self,
        refer: Callable[[Any, Codec], Wire],
        resolve: Callable[[str, list[Any], Codec], Any],
        shared: Collection[str] = (),
        *,
        trusted: bool = False,
        owner: Owner | None = None,
    ) -> None:
        self._owner = owner
        self._deepest_written, self._deepest_read = DEEPEST, DEEPEST_GIVEN
        if trusted:
            self._deepest_written, self._deepest_read = DEEPEST_GIVEN, DEEPEST
        self._refer = refer
        self._resolve = resolve
        self._shared = shared
        self._count = 0
        self._rows: dict[tuple[str, ...], type] = {}
        self._places: dict[int, int] = {}
        self.containers: list[Any] = []

    def part(self) -> Codec:
        """Returns what writes and reads a part of what this one is at, however deep it stands."""
        part = Codec(self._refer, self._resolve, self._shared, owner=self._owner)
        part._deepest_written, part._deepest_read = self._deepest_written, self._deepest_read
        part._places, part.containers = self._places, self.containers
        return part

    def note(self, container: Any) -> None:
        """Gives a container the next number, by which it is known when it comes again."""
        self._places[id(container)] = len(self.containers)
        self.containers.append(container)

    def known(self, container: Any) -> Wire | None:
        """Returns the wire form of a container that has come before, or None."""
        place = self._places.get(id(container))
        return None if place is None else ["=", place]

    def write(self, value: Any) -> Wire:
        """Returns the wire form of a value; see `write_all`."""
        return self.write_all([value])[0]

    def write_all(self, values: Sequence[Any], known: Sequence[Any] = ()) -> list[Wire]:
        """Returns the wire forms of values; a container that comes again, or is known, is written as its number.

        Raises:
            Unsendable: a value is too deep, too large or of a kind that does not cross.
        """
        self._count = 0
        self.containers = list(known)
        self._places = {id(container): place for place, container in enumerate(known)}
        return [self._write(value, 0) for value in values]

    def read(self, wire: Wire) -> Any:
        """Returns the value of a wire form; see `read_all`."""
        return self.read_all([wire])[0]

    def read_all(self, wires: Sequence[Wire], known: Sequence[Any] = ()) -> list[Any]:
        """Returns the values of wire forms; `known` are the containers that the writer knew, in the same order.

        Raises:
            Malformed: one is no value.
        """
        self._count = 0
        self.containers = list(known)
        try:
            return [self.read_part(wire) for wire in wires]
        except RecursionError as error:
            raise Malformed("a value is nested too deeply") from error

    def write_part(self, value: Any) -> Wire:
        """Returns the wire form of a part of what is being written."""
        return self._write(value, 0)

    def read_part(self, wire: Wire) -> Any:
        """Returns the value of a part of what is being read.

        Raises:
            Malformed: it is none.
        """
        try:
            return self._read(wire, 0)
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"{type(error).__name__} while reading a value") from error

    def _write(self, value: Any, depth: int) -> Wire:
        kind = type(value)
        if value is None or kind is bool or kind is str or kind is float:
            return value
        if kind is int:
            return value if -_SMALL < value < _SMALL else ["i", _hex(value)]
        self._count += 1
        if depth > self._deepest_written or self._count > MOST_VALUES:
            raise Unsendable("a value is nested too deeply or too large")
        deeper = depth + 1
        if kind in _CONTAINERS:
            place = self._places.get(id(value))
            if place is not None:
                return ["=", place]
            self.note(value)
        if kind is list:
            return ["l", [self._write(item, deeper) for item in value]]
        if kind is tuple:
            return ["t", [self._write(item, deeper) for item in value]]
        if kind is dict:
            return ["d", [[self._write(key, deeper), self._write(item, deeper)] for key, item in value.items()]]
        if kind is set or kind is frozenset:
            items = [self._write(item, deeper) for item in value]
            return ["s" if kind is set else "z", sorted(items, key=repr) if len(items) <= _SORTED else items]
        if kind is bytes or kind is bytearray:
            return ["b" if kind is bytes else "B", value.hex()]
        if kind is complex:
            return ["c", value.real, value.imag]
        if kind is range:
            return ["r", *(self._write(part, deeper) for part in (value.start, value.stop, value.step))]
        if value is Ellipsis:
            return ["e"]
        if kind is slice:
            return ["S", *(self._write(part, deeper) for part in (value.start, value.stop, value.step))]
        if kind in _VIEWS:
            return [_VIEWS[kind], [self._write(item, deeper) for item in value]]
        if issubclass(kind, type):
            return ["y", _TYPE_NAMES[value]] if value in _TYPE_NAMES else self._refer(value, self)
        return self._write_library(value, kind, deeper)

    def _write_library(self, value: Any, kind: type, depth: int) -> Wire:
        """Writes types of the standard library, and subclasses of built-in ones as what they hold."""
        if kind is io.StringIO or kind is io.BytesIO:
            return self._write_stream(value, kind, depth)
        if kind is deque:
            return ["q", value.maxlen, [self._write(item, depth) for item in value]]
        if kind in (Counter, OrderedDict, defaultdict):
            pairs = [[self._write(key, depth), self._write(item, depth)] for key, item in value.items()]
            if kind is defaultdict:
                return ["u", pairs, _TYPE_NAMES.get(value.default_factory, "")]
            return ["C" if kind is Counter else "O", pairs]
        decimal, fractions, clock = (sys.modules.get(name) for name in ("decimal", "fractions", "datetime"))
        if decimal is not None and kind is decimal.Decimal:
            return ["D", str(value)]
        if fractions is not None and kind is fractions.Fraction:
            return ["F", self._write(value.numerator, depth), self._write(value.denominator, depth)]
        if clock is not None and kind in (clock.date, clock.datetime, clock.time, clock.timedelta):
            return _write_clock(value, kind.__name__)
        if kind.__name__ in self._shared and is_enumeration(kind):
            return ["m", kind.__name__, value._name_, self._write(value._value_, depth)]
        if kind in (UserList, UserDict, UserString):
            return self._write(value.data, depth)
        if kind in _MEMBER_NAMES:
            return ["m", kind.__name__, *_MEMBER_NAMES[kind]]
        if issubclass(kind, _SUBCLASSED):
            return self._write_owned(value, kind, depth)
        return self._refer(value, self)

    def _write_stream(self, value: Any, kind: Any, depth: int) -> Wire:
        """Writes a stream of text or bytes: what it holds, and where it stands."""
        if value.closed:
            raise Unsendable("a stream that is closed")
        return ["w", self._write(kind.getvalue(value), depth), kind.tell(value)]

    def _write_owned(self, value: Any, kind: type, depth: int) -> Wire:
        """Writes an instance of a subclass of a built-in type: what it holds, and its number if it is more."""
        numbered = self._owner.number_of(value) if self._owner is not None else None
        if numbered is None:
            return self._write_subclass(value, kind, depth)
        known, place = self.known(value), len(self.containers)
        if known is not None:
            return known
        wire = self._write_subclass(value, kind, depth)
        if issubclass(kind, _CHANGING):
            self.containers[place] = value
            self._places[id(value)] = place
        return ["U", *numbered, wire]

    def _write_subclass(self, value: Any, kind: type, depth: int) -> Wire:
        held: Any
        if is_enumeration(kind) and type(value._name_) is str and type(value._value_) in (int, str):
            return ["M", kind.__name__, value._name_, self._write(value._value_, depth)]
        for plain in (int, float, complex, str, bytes, bytearray):
            if issubclass(kind, plain):
                return self._write(_plain(plain, value), depth)
        many: Any
        for many in (Counter, OrderedDict, defaultdict):
            if issubclass(kind, many):
                held = many() if many is not defaultdict else many(value.default_factory)
                (OrderedDict if many is OrderedDict else dict).update(held, dict.items(value))
                return self._write(held, depth)
        if issubclass(kind, deque):
            return self._write(deque(deque.__iter__(value), value.maxlen), depth)
        for many in (list, set, frozenset):
            if issubclass(kind, many):
                return self._write(many(many.__iter__(value)), depth)
        if issubclass(kind, dict):
            return self._write(dict(dict.items(value)), depth)
        held = tuple(tuple.__iter__(value))
        fields = getattr(kind, "_fields", None)
        if type(fields) is tuple and len(fields) == len(held) and all(type(name) is str for name in fields):
            return ["n", kind.__name__, list(fields), [self._write(item, depth) for item in held]]
        return self._write(held, depth)

    def _read(self, wire: Wire, depth: int) -> Any:
        kind = type(wire)
        if wire is None or kind is bool or kind is str or kind is int or kind is float:
            return wire
        self._count += 1
        if depth > self._deepest_read or self._count > MOST_VALUES:
            raise Malformed("a value is nested too deeply or too large")
        if kind is not list or not wire or type(wire[0]) is not str:
            raise Malformed("not a value")
        tag, deeper = wire[0], depth + 1
        if tag in ("l", "s"):
            _, items = wire
            made: Any = [] if tag == "l" else set()
            self.containers.append(made)
            (made.extend if tag == "l" else made.update)([self._read(item, deeper) for item in _listed(items)])
            return made
        if tag in ("t", "z"):
            _, items = wire
            read = [self._read(item, deeper) for item in _listed(items)]
            return tuple(read) if tag == "t" else frozenset(read)
        if tag in _MAPPINGS:
            made = _mapping(*wire[2:]) if tag == "u" else _MAPPINGS[tag]()
            self.containers.append(made)
            held = {self._read(key, deeper): self._read(item, deeper) for key, item in _listed(wire[1])}
            (OrderedDict if tag == "O" else dict).update(made, held)  # that of a Counter would count
            return made
        if tag == "=":
            if type(wire[1]) is not int or not 0 <= wire[1] < len(self.containers):
                raise Malformed("a container that has not come before")
            return self.containers[wire[1]]
        if tag in ("K", "V", "P"):
            return _view(tag, [self._read(item, deeper) for item in _listed(wire[1])])
        if tag == "S":
            return slice(*(self._read(part, deeper) for part in wire[1:4]))
        if tag == "i":
            return _unhex(wire[1])
        if tag == "q":
            _, most, items = wire
            if most is not None and (type(most) is not int or most < 0):
                raise Malformed("a deque of no length")
            queue: deque[Any] = deque(maxlen=most)
            self.containers.append(queue)
            queue.extend([self._read(item, deeper) for item in _listed(items)])
            return queue
        if tag == "w":
            place = len(self.containers)
            self.containers.append(None)
            stream = self.containers[place] = _stream(self._read(wire[1], deeper), wire[2])
            return stream
        if tag == "r":
            return range(*(self._whole(part) for part in wire[1:4]))
        if tag == "F":
            from fractions import Fraction

            return Fraction(self._whole(wire[1]), self._whole(wire[2]))
        if tag == "U":
            _, number, texts, inner = wire
            place = len(self.containers)
            plain = self._read(inner, deeper)
            if self._owner is None:
                return plain
            made = self._owner.numbered(number, texts, inner, plain)
            if isinstance(plain, _CHANGING) and inner[0] != "=":
                self.containers[place] = made
            return made
        if tag == "n":
            _, name, fields, items = wire
            return self._row(name, _listed(fields))([self._read(item, deeper) for item in _listed(items)])
        if tag == "M":
            return _data_member(_text(wire[1]), _text(wire[2]), self._read(wire[3], deeper))
        if tag in _LEAVES:
            return _LEAVES[tag](wire)
        return self._resolve(tag, wire, self)

    def _whole(self, wire: Wire) -> int:
        value = self._read(wire, DEEPEST)
        if type(value) is not int:
            raise Malformed("not a whole number")
        return value

    def _row(self, name: Any, fields: list[Any]) -> type:
        """Returns a tuple type with named fields, as a named tuple has them."""
        if not all(type(text) is str and text.isidentifier() and text[0] != "_" for text in fields):
            raise Malformed("a tuple with impossible names")
        key = (_text(name), *fields)
        if key not in self._rows:
            named = [(text, place) for place, text in enumerate(fields) if text not in DATA_METHODS]
            spaces: dict[str, Any] = {text: property(itemgetter(place)) for text, place in named}
            spaces |= {"_fields": tuple(fields), "_asdict": _as_dict, "_replace": _replaced, "__repr__": _row_text}
            self._rows[key] = type(_text(name)[:100] or "row", (tuple,), {"__slots__": (), **spaces})
        return self._rows[key]


def _as_dict(row: Any) -> dict[str, Any]:
    return dict(zip(row._fields, row, strict=True))


def _replaced(row: Any, **changes: Any) -> Any:
    if changes.keys() - set(row._fields):
        raise ValueError(f"Got unexpected field names: {sorted(changes.keys() - set(row._fields))}")
    return type(row)((_as_dict(row) | changes).values())


def _row_text(row: Any) -> str:
    return f"{type(row).__name__}({', '.join(f'{name}={item!r}' for name, item in _as_dict(row).items())})"


def _stream(held: Any, place: Any) -> io.StringIO | io.BytesIO:
    """Returns a stream that holds a text or bytes and stands at a place."""
    if type(held) not in (str, bytes) or type(place) is not int:
        raise Malformed("not a stream")
    stream: Any = io.StringIO(newline="") if type(held) is str else io.BytesIO()
    stream.write(held)
    stream.seek(place)
    return stream  # type: ignore[no-any-return]


def size(value: Any) -> int:
    """Returns how much a container holds, in items; a stream in lines of an ordinary length."""
    if type(value) in (io.StringIO, io.BytesIO):
        return MOST_SHARED + 1 if value.closed else len(value.getvalue()) // _LINE
    return len(value)


def is_enumeration(kind: Any) -> bool:
    """Returns whether it is a class of `enum`, which need not be loaded for that."""
    enum = sys.modules.get("enum")
    return enum is not None and isinstance(kind, enum.EnumMeta)


def member(kind: Any, name: Any, value: Any) -> Any:
    """Returns the member of an enumeration, by its name, or by its value for a combination of flags."""
    return kind.__members__[name] if name in kind.__members__ else kind(value)


def _data_member(kind: str, name: str, value: Any) -> Any:
    """Returns a member of an enumeration that is a number or a text too: that, with a name, a value and no more."""
    key = (kind, name, value)
    if type(value) not in (int, str) or not kind.isidentifier():
        raise Malformed("a member that is neither a whole number nor a text")
    if key not in _MEMBERS:
        made = type(kind, (type(value),), {"__slots__": (), "name": name, "value": value})
        _MEMBER_NAMES[made] = (name, value)
        _MEMBERS[key] = made(value)
    return _MEMBERS[key]


def attributes(value: Any) -> dict[str, Any] | None:
    """Returns what an instance holds, in its `__dict__` and its slots; None for what holds nothing by name."""
    held = getattr(value, "__dict__", None)
    slots = [
        name
        for kind in type(value).__mro__
        for name, part in vars(kind).items()
        if isinstance(part, MemberDescriptorType)
    ]
    if type(held) is not dict and not slots:
        return None
    found = dict(held) if type(held) is dict else {}
    return found | {name: getattr(value, name) for name in slots if hasattr(value, name)}


def _plain(kind: Any, value: Any) -> Any:
    """Returns what a subclass of a scalar type holds, by the type's own methods."""
    if kind is str:
        return "".join(str.__iter__(value))
    if kind in (bytes, bytearray):
        return kind(memoryview(value))
    return kind.__add__(value, kind())


def _mapping(factory: Any) -> defaultdict[Any, Any]:
    """Returns a dictionary that makes up what it lacks; of functions only built-in types cross."""
    return defaultdict(TYPES[_text(factory)] if factory else None)


def _view(tag: str, items: list[Any]) -> Any:
    """Returns a view of a dictionary with these keys, values or pairs."""
    if tag == "K":
        return dict.fromkeys(items).keys()
    return dict(enumerate(items)).values() if tag == "V" else dict(items).items()


def _hex(value: int) -> str:
    if value.bit_length() > MOST_BITS:
        raise Unsendable("a whole number is too large")
    return f"{value:x}"


def _unhex(text: Any) -> int:
    if type(text) is not str or len(text) > MOST_BITS // 4 + 2 or text.strip(_HEX):
        raise Malformed("not a whole number")
    return int(text, 16)


def _listed(wire: Any) -> list[Any]:
    if type(wire) is not list:
        raise Malformed("not a list")
    return wire


def _text(wire: Any) -> str:
    if type(wire) is not str:
        raise Malformed("not a text")
    return wire


def _float(wire: Any) -> float:
    if type(wire) is not float:
        raise Malformed("not a float")
    return wire


def _write_clock(value: Any, name: str) -> Wire:
    if name == "timedelta":
        return ["T", name, value.days, value.seconds, value.microseconds]
    parts: list[Any] = [] if name == "time" else [value.year, value.month, value.day]
    if name == "date":
        return ["T", name, *parts]
    offset = value.utcoffset()
    shift = None if offset is None else offset.total_seconds()
    return ["T", name, *parts, value.hour, value.minute, value.second, value.microsecond, shift]


def _read_clock(wire: list[Any]) -> Any:
    import datetime

    name, parts = wire[1], wire[2:]
    if name not in _CLOCK:
        raise Malformed("not a time")
    if name in ("datetime", "time"):
        shift = parts.pop()
        parts.append(None if shift is None else datetime.timezone(datetime.timedelta(seconds=_float(shift))))
    if not all(type(part) is int for part in parts if part is not None and not isinstance(part, datetime.tzinfo)):
        raise Malformed("not a time")
    return getattr(datetime, name)(*parts)


def _read_type(wire: list[Any]) -> type:
    return TYPES[_text(wire[1])]


def _read_decimal(wire: list[Any]) -> Any:
    from decimal import Decimal

    return Decimal(_text(wire[1])[:100_000])


_LEAVES: dict[str, Callable[[list[Any]], Any]] = {
    "b": lambda wire: bytes.fromhex(_text(wire[1])),
    "B": lambda wire: bytearray.fromhex(_text(wire[1])),
    "c": lambda wire: complex(_float(wire[1]), _float(wire[2])),
    "e": lambda wire: Ellipsis,
    "y": _read_type,
    "D": _read_decimal,
    "T": _read_clock,
}
