"""Runs altered assertions; their failure is recorded and does not end the test (`grpo.rewards.code.altered`).

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import random
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from os import urandom
from typing import Any

from grpo.rewards.code.guest.customs import FILE, MODULE
from grpo.rewards.code.guest.near import NEAR, far, near
from grpo.rewards.code.guest.plain import KINDS, NotPlain, decode, encode
from grpo.rewards.code.guest.units import Stop

OBJECTS, REACHED, ENDED = "objects", "reached", "ended"
_MOST_PARTS, _MOST_VALUES = 1000, 1_000_000
_NO_VALUES = (type, types.FunctionType, types.ModuleType, BaseException, set, frozenset)
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_HOLDING: tuple[Any, ...] = (list, tuple, dict, deque, range, map, filter, zip, *_VIEWS, types.GeneratorType)
_QUICK = frozenset(map(id, (bool, int, float, str, bytes, type(None))))
_OF_PAIRS = frozenset(map(id, (dict, Counter, OrderedDict)))
_OF_ITEMS = frozenset(map(id, (list, tuple, set, frozenset, deque, *_VIEWS))) | _OF_PAIRS
_PLAIN = frozenset(map(id, KINDS))  # no class is compared, as its own class could notice that
_classes, _held = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__"))


def softening(run: int) -> tuple[dict[str, Any], Callable[[], dict[str, int]]]:
    """Returns what altered tests call, by its name, and what returns how the assertions of the unit went.

    That is 0 for one that failed, as it should; 1 for one that held, of objects of the solution; 2 for one that held of
    plain data. OBJECTS stands among them where an object that is no plain data was asked, REACHED where any assertion
    was, ENDED in all that a unit tells at its end.
    """
    rng = random.Random(urandom(8))
    held: dict[str, int] = {}
    times: dict[str, list[bool]] = {}  # whether an assertion held, each time
    open_ones: list[tuple[str, bool, bool]] = []  # the key of each assertion around, whether it asks, of plain data
    pair: list[Any] = []
    is_equality = False  # whether this assertion is of two values
    other_asked = False  # whether one before, in the unit, was not

    def soft(key: str, asks: bool) -> bool:
        open_ones.append((key, asks, not asks or key.endswith("?")))
        return True

    def ended(error: BaseException | None) -> None:
        nonlocal is_equality, other_asked
        key, asks, is_plain = open_ones.pop()
        is_equality, other_asked = False, other_asked or not is_equality
        held.setdefault(REACHED, 1)
        if asks and not (is_plain and key.endswith("?")):
            record(key, error is None, is_plain)
        if isinstance(error, (Stop, GeneratorExit)):
            raise error

    def record(key: str, holds: bool, is_plain: bool) -> None:
        times.setdefault(key, []).append(holds)
        held[OBJECTS] = held.get(OBJECTS, 0) or int(holds and not is_plain)
        often = sum(times[key]) * 2 > len(times[key]) if key[-1] in "~?^" else any(times[key])
        held[key] = 0 if not often else 2 if is_plain else 1

    def note(is_plain: bool, asks: bool | None = None) -> None:
        """Notes whether a value that is seen is plain data, and whether something is asked of it."""
        if not is_plain:
            held[OBJECTS] = 1
        if open_ones:
            key, asked, plain = open_ones.pop()
            open_ones.append((key, asked if asks is None else asks, plain and is_plain))

    def seen(value: Any, asks: bool = True) -> Any:
        note(all_plain(value), not _holds_of_tests(value) if asks else None)  # which may equal what they like
        return value

    def changed(value: Any, is_far: bool, beside: Any = None) -> Any:
        """Returns another value in place of one of the tests, or one of the solution as it is."""
        try:
            other = altered(value, rng, run, is_far or run not in NEAR, beside)
        except TypeError:
            note(all_plain(value))
            return value
        note(all_plain(value), not _holds_of_tests(beside) and not _holds_of_tests(value))
        return other

    def first(value: Any) -> Any:
        """Stands around the first of two values, one of which is changed: plain data, where it is the only one."""
        pair[:] = [value]
        return changed(value, True) if all_plain(value) else value

    def second(value: Any, is_far: bool = False, number: bool = False) -> Any:
        left = pair.pop() if pair else NotPlain
        note(left is not NotPlain and all_plain(left))
        if all_plain(left):  # and what it was changed to may be what the other one accepts
            note(all_plain(value), asks=False if _holds_of_tests(value) or _accepts(value) else None)
            return value
        other = changed(value, is_far, left)
        if other is not value or all_plain(value) or _holds_of_tests(value) or _accepts(value):
            return other
        own = any(map(is_of_solution, _classes(type(value))))
        if number or not own or type(left) is not type(value):  # what no object equals that looks at it
            note(False, asks=True)
            return rng.randrange(10**6, 10**7) if number else object.__new__(type(value) if own else object)
        return value

    def asks(value: Any, right: Any, other: Any, turned: bool) -> bool:
        """Returns whether a value equals another one; an object is asked for the right one, too, in either order.

        So an object gains nothing if it knows that the run is altered: it is wrong if it denies what it said before,
        unless questions of another kind, which it may count, were altered in the unit.
        """
        nonlocal is_equality
        is_equality = True
        pairs = [(False, other)]
        if not all_plain(value) and not _holds_of_tests(value):
            pairs.insert(rng.randrange(2), (True, right))
        equal: dict[bool, bool] = {}
        for is_right, each in pairs:
            try:
                equal[is_right] = bool(each == value if turned else value == each)
            except Exception:
                if not is_right:
                    raise
                equal[True] = False
            if is_right and not equal[True] and equal.get(False, True) and not other_asked:
                record(f"{open_ones[-1][0].split()[0]} denied 0 0 ", True, False)
        return equal[False]

    def both(left: Any, right: Any) -> bool:
        one, other = first(left), second(right)
        if one is not left or other is right:
            return bool(one == other)
        return asks(left, _fresh(right), other, False)

    def stranger(item: Any, holder: Any) -> Any:
        """Returns what no container of the solution has that does not have everything, in place of plain data."""
        is_plain = all_plain(item)
        if not is_plain or any(type(holder) is kind for kind in _HOLDING) or all_plain(holder):
            return seen(item, False)
        note(False, asks=True)
        return "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=9)) if type(item) is str else object()

    def strangers(value: Any) -> Any:
        """Returns values of which none is in a container, or iterator, of the interpreter; any other one as it is."""
        if not any(type(value) is kind for kind in _HOLDING):
            return value
        note(True, asks=True)
        return [far(each, rng, run) if all_plain(each) and each is not None else object() for each in islice(value, 50)]

    def yes(answer: Any) -> Any:
        """Stands around an altered comparison within another condition, which counts by itself."""
        key, asks, is_plain = open_ones.pop()
        open_ones.append((key, False, is_plain))
        if asks and not is_plain:
            record(key, answer is True, is_plain)
        return answer

    def every(*conditions: Any) -> bool:
        return all(conditions)

    def notes() -> dict[str, int]:
        nonlocal other_asked
        other_asked = False
        noted = {ENDED: 1, **held}
        held.clear()
        times.clear()
        return noted

    functions: tuple[Callable[..., Any], ...] = (soft, seen, first, second, asks, both, stranger, strangers, yes, every)
    judge: dict[str, Any] = {f"__{function.__name__}__": function for function in functions}
    return judge | {"__held__": ended}, notes


def altered(value: Any, rng: random.Random, run: int, is_far: bool, beside: Any = None) -> Any:
    """Returns another value like one of the tests, in a part that is compared with an object `beside` if there is one.

    Runs no code of a class. Raises TypeError: it is the solution's, or of an unknown type.
    """
    kind = type(value)
    if value is None:
        return rng.randrange(17, 99)
    if all_plain(value) and ((kind is not list and kind is not tuple) or all_plain(beside) or beside is None):
        return far(value, rng, run, 0, True) if is_far else near(value, rng, run)
    if kind is list or kind is tuple or kind is deque:
        others = beside if (type(beside) is list or type(beside) is tuple) and len(beside) == len(value) else None
        places = [at for at, each in enumerate(others or ()) if not all_plain(each)] or list(range(len(value)))
        items = list(value)
        for at in rng.sample(places, len(places)):
            try:
                items[at] = altered(items[at], rng, run, is_far, others and others[at])
            except TypeError:
                continue
            return kind(items)
        if not items:
            return kind([0])
        raise TypeError("items of the solution")
    if kind is dict:
        same = type(beside) is dict and all_plain([*value]) and all_plain([*beside]) and value.keys() == beside.keys()
        others = [beside[key] for key in value] if same else None
        return dict(zip(value, altered([*value.values()], rng, run, is_far, others), strict=True))
    kinds = _classes(kind)
    held: dict[str, Any] = next(
        (_held(each)["__dict__"].__get__(value) for each in kinds if "__dict__" in _held(each)), {}
    )
    no_value = any(each is known for each in kinds for known in _NO_VALUES)
    if no_value or any(map(is_of_solution, (kind, *_classes(type(kind))))):
        raise TypeError("a value of the solution, or none of which another can be made")
    if "expected" in held and _accepts(value):  # approx
        other = copied(value, held, kind)
        other.expected = altered(value.expected, rng, run, is_far)
        if not is_far and value == other.expected:  # within its tolerance
            other.expected = altered(value.expected, rng, run, True)
        return other
    if _accepts(value):
        raise TypeError("a matcher of a library")
    if any(each is tuple for each in kinds):
        return tuple.__new__(kind, altered(tuple(tuple.__iter__(value)), rng, run, is_far))
    like: Any = copied(value, held, kind)
    for name, each in held.items():
        try:
            object.__setattr__(like, name, altered(each, rng, run, is_far))
        except TypeError:
            continue
        return like
    return object.__new__(kind)


def _fresh(value: Any) -> Any:
    """Returns plain data that nobody else holds, like another value that was made; anything else as it is."""
    try:
        return decode(encode(value))
    except NotPlain:
        return value


def copied(value: Any, held: dict[str, Any], kind: type) -> Any:
    other: Any = object.__new__(kind)
    for name, each in held.items():
        object.__setattr__(other, name, each)
    return other


def is_of_solution(kind: type) -> bool:
    """Whether the solution may have defined the class, whatever it says."""
    held = _held(kind)
    functions = [each for each in held.values() if type(each) is types.FunctionType]
    module = held.get("__module__")
    return (type(module) is str and module == MODULE) or any(each.__code__.co_filename == FILE for each in functions)


def _accepts(value: Any) -> bool:
    module = _held(type(value)).get("__module__")
    of_library = type(module) is str and module.startswith(("_pytest", "unittest.mock"))
    return of_library and not is_of_solution(type(value))


def _holds_of_tests(value: Any) -> bool:
    """Whether a value is, or holds, one of a class of the tests with its own equality."""
    waiting = [value]
    for _ in range(_MOST_PARTS):
        if not waiting:
            return False
        each = waiting.pop()
        kind = type(each)
        if any(kind is known for known in _HOLDING[:4]):
            waiting += [*each, *each.values()] if kind is dict else each
        elif kind is set or kind is frozenset:
            waiting += each
        method = next((_held(each)["__eq__"] for each in _classes(kind) if "__eq__" in _held(each)), None)
        if type(method) is types.FunctionType and method.__code__.co_filename == "<tests>":
            return True
    return False


def all_plain(value: Any) -> bool:
    """Does not ask the value's class."""
    waiting = [value]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return True
        each = waiting.pop()
        kind = id(type(each))
        if kind in _QUICK:
            continue
        if kind not in _PLAIN:
            return False
        if kind in _OF_ITEMS:
            waiting += [*each, *each.values()] if kind in _OF_PAIRS else each
    return False
