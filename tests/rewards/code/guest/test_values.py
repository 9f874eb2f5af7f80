"""The values that cross between sandboxes, and what is refused on the way."""

import datetime
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from grpo.rewards.code.guest.values import DEEPEST, Codec, Malformed, Unsendable

VALUES = [
    None,
    True,
    0,
    -(2**61),
    2**62,
    -(2**5000),
    1.5,
    -0.0,
    math.inf,
    "",
    "é\ud800\x00",
    b"\x00\xff",
    bytearray(b"ab"),
    1 + 2j,
    [1, [2, []]],
    (1, (2,)),
    {1: "a", (2, 3): [None]},
    {1, 2},
    frozenset({(1,)}),
    range(1, 10, 3),
    ...,
    int,
    type(None),
    Decimal("1.10"),
    Fraction(1, 3),
    deque([1, 2], 3),
    Counter("aab"),
    OrderedDict(b=1, a=2),
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC),
    datetime.time(1, 2),
    datetime.timedelta(days=-1, microseconds=5),
]


def refused(value: object, codec: Codec) -> None:
    raise Unsendable(type(value).__name__)


def unknown(tag: str, wire: Any, codec: Codec) -> None:
    raise Malformed(tag)


def crossed(value: Any) -> Any:
    codec = Codec(refused, unknown)
    return Codec(refused, unknown).read(json.loads(json.dumps(codec.write(value))))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_arrives_as_it_was(value: Any) -> None:
    arrived = crossed(value)
    assert type(arrived) is type(value)
    assert arrived == value
    assert repr(arrived) == repr(value)


def test_nan_arrives_as_nan() -> None:
    assert math.isnan(crossed(math.nan))


def test_what_derives_from_a_built_in_type_arrives_as_that_type() -> None:
    class Liar(int):
        __eq__ = lambda self, other: True  # noqa: E731
        __hash__ = int.__hash__

    class Text(str):
        __slots__ = ()
        __eq__ = lambda self, other: True  # noqa: E731
        __hash__ = str.__hash__

    class Rows(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(["lies"])

    for value, plain in [(Liar(3), 3), (Text("a"), "a"), (Rows([1]), [1]), (defaultdict(int, a=1), {"a": 1})]:
        arrived = crossed(value)
        assert arrived == plain
        assert type(arrived) in (int, str, list, defaultdict)


def test_a_named_tuple_keeps_its_names() -> None:
    Point = namedtuple("Point", "x y")
    arrived = crossed(Point(1, 2))
    assert arrived == (1, 2)
    assert (arrived.x, arrived.y) == (1, 2)


@pytest.mark.parametrize("value", [object(), len, (n for n in [1]), lambda: 0, type("C", (), {})], ids=type)
def test_what_is_no_data_is_referred(value: Any) -> None:
    with pytest.raises(Unsendable):
        Codec(refused, unknown).write(value)


def test_what_is_one_object_arrives_as_one() -> None:
    row = [1]
    arrived = crossed([row, row, {"row": row}, [1]])
    assert arrived[0] is arrived[1] is arrived[2]["row"] is not arrived[3]
    loop: list[Any] = []
    loop.append((loop,))
    arrived = crossed(loop)
    assert arrived[0][0] is arrived


def test_a_value_that_is_too_deep_or_too_large_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(DEEPEST + 1):
        deep = [deep]
    for value in (deep, 2**5_000_000):
        with pytest.raises(Unsendable):
            Codec(refused, unknown).write(value)


@pytest.mark.parametrize(
    "wire",
    [
        [],
        {},
        ["?"],
        [1],
        ["l"],
        ["l", 1],
        ["l", [["l"]]],
        ["d", [[1]]],
        ["d", [[["l", []], 1]]],
        ["s", [["l", []]]],
        ["i", 5],
        ["i", "0x10"],
        ["i", "1_0"],
        ["i", "\u0661"],
        ["i", "f" * 2_000_000],
        ["b", "zz"],
        ["c", "1", 2.0],
        ["y", "eval"],
        ["y", "type"],
        ["y", "__import__"],
        ["D", 1],
        ["D", "x"],
        ["F", 1, 0],
        ["F", 1.5, 2],
        ["T", "__class__", 1],
        ["T", "date", 2024, 13, 1],
        ["T", "date", 2024.0, 1, 1],
        ["r", "1", 2, 1],
        ["r", 1, 2, 0],
        ["q", -1, []],
        ["q", "1", []],
        ["n", "P", ["__class__"], [1]],
        ["n", "P", [1], [1]],
        ["n", 5, ["a"], [1]],
        ["h", 1, "", False, []],
    ],
    ids=str,
)
def test_a_wire_form_that_is_no_value_is_refused(wire: Any) -> None:
    with pytest.raises(Malformed):
        Codec(refused, unknown).read(wire)


def test_a_wire_form_that_is_too_deep_is_refused() -> None:
    wire: list[Any] = ["l", []]
    for _ in range(DEEPEST + 1):
        wire = ["l", [wire]]
    with pytest.raises(Malformed):
        Codec(refused, unknown, trusted=True).read(wire)
    assert Codec(refused, unknown).read(wire)


def test_an_argument_may_hold_the_deepest_answer_and_more() -> None:
    answer: list[Any] = []
    for _ in range(DEEPEST):
        answer = [answer]
    with pytest.raises(Unsendable):
        Codec(refused, unknown).write([answer])
    wire = Codec(refused, unknown, trusted=True).write([[[answer]]])
    assert Codec(refused, unknown).read(wire) == [[[answer]]]
