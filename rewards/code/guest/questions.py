"""Asks the objects of a solution more than the tests do, so that one that says yes to everything is found.

The tests run several times. The first run asks what they ask, and decides whether they pass. In the others, before a
test asks an object of the solution, the object is asked the same among other questions, in an order that it cannot
know: about other values, or the other way round. One that says yes to all of them has said nothing, and one that
answers the test otherwise than in the first run has taken another value for the test's. What else the further questions
change, such as a counter of the solution, does not matter there. Plain data has no opinion and is not asked.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from os import urandom
from typing import Any

from grpo.rewards.code.guest.customs import FILE
from grpo.rewards.code.guest.near import (
    BOTH,
    EVERYTHING,
    Made,
    around,
    further,
    is_approximate,
    like,
    middle,
    nearby,
    sides,
)
from grpo.rewards.code.guest.plain import NotPlain, decode, encode

_NUMBERS = (bool, int, float)
_COUNTING = (int, float, str, bool, type(None), list, dict, set, collections.deque, collections.Counter)
_OPPOSITE, _END, _SIDE = str.maketrans("lg", "gl"), 10**7, {"lt": -1, "le": -1, "gt": 1, "ge": 1}
_AGAINST = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_CONTAINERS = (dict, list, tuple, collections.deque, set, frozenset)
_SCANNED: tuple[Any, ...] = (list, tuple, collections.deque, type({}.values()))
_HOLDING = (*_CONTAINERS, *_SCANNED, range, type({}.keys()))
_STANDING_FOR = (weakref.ProxyType, weakref.CallableProxyType, types.MappingProxyType)  # another object
_HEAP = 1 << 9  # the flag of a class that is not part of the interpreter
_MOST_PAIRS = 64
_MOST_ANSWERS = 100_000
_OFTEN = 2000  # comparisons of a process, after which objects are asked no further, as that takes long
_MOMENT = 0.05  # seconds that a clock may go on between two answers
_OWN: dict[int, tuple[type, bool]] = {}  # by the ids of classes, which are kept: what `_is_own` found
_PLAIN = {int, float, str, bool, type(None)}
# Of a class itself, whatever its metaclass says.
_classes, _flags, _held = (type.__dict__[name].__get__ for name in ("__mro__", "__flags__", "__dict__"))

Say = Callable[[list[Any]], Any]
Opinion = tuple[Any, Any, bool, Any, str]
"""An object, a value, whether they surely are equal where the tests say so, its answer, and what is wrong then."""


def questions(
    say: Say, faults: list[str], answers: list[str], *, asks: bool, makes: bool, any_value: bool
) -> tuple[dict[str, Any], Callable[[], bool]]:
    """Returns what the tests call to compare something with what the solution made, by its name.

    And a function that says whether all objects of a class are equal, where tests `make` some.

    Args:
        say: asks the keeper.
        faults: gets what is wrong with the objects of the solution.
        answers: gets a letter for each answer of such an object to the tests.
        asks: ask objects further.
        makes: notice what objects are made of and which are compared, and ask no more.
        any_value: the tests themselves use `unittest.mock.ANY`.
    """
    left_over = iter(range(_OFTEN))
    made = Made()

    def is_over() -> bool:
        """Returns whether objects are asked no further."""
        return operator.length_hint(left_over) == 0

    def told(question: Callable[[], Any]) -> Any:
        """Asks a question of the tests that an object of the solution decides."""
        letter = "r"  # it raised
        try:
            result = question()
            letter = "y" if _is_true(result) else "n"
            return result
        finally:
            if len(answers) < _MOST_ANSWERS:
                answers.append(letter)

    def among(ask: Callable[[Any], Any], own: Any, wanted: Any, place: int = -1) -> tuple[Any, Any, str]:
        """Asks about a value among others like it, in an order that only the keeper knows.

        Returns the value, the answer to it and what is wrong with all answers. Raises NotPlain for what cannot cross.
        """
        values = [decode(wire) for wire in say(["object", place, encode(wanted)])]
        given = [_answer(lambda: ask(value)) for value in values]  # noqa: B023
        letters = [each if type(each) is str else "raised" for each in given]
        right, fault = say(["answers", letters, next(_pairs(own, values[0]), None) is not None])
        return values[right], given[right], fault

    def known(value: Any, place: int, tolerance: float | None = None, made: bool = False) -> bool:
        """Compares with an expected value. `made`: tests made the object, and deny elsewhere that one is equal."""
        with contextlib.suppress(NotPlain, RecursionError):
            return bool(say(["known", place, encode(value), tolerance]))
        other, answer, _ = among(functools.partial(_equality, value), value, None, place)
        if isinstance(answer, BaseException):
            raise answer
        opinions = None if made or _decides(value) else suspect(value, other)
        result = bool((_now if opinions is None and not _decides(value) else told)(lambda: value == other))
        confirm(opinions or [] if result else [])
        return result

    def alike(left: Any, right: Any) -> Any:
        return holding(lambda: left == right, _is_true, left, right)

    def compared(left: Any, right: Any) -> Any:
        """Compares within an assertion, where the result may be anything, such as a query or an array."""
        return holding(lambda: left == right, lambda result: type(result) in _COUNTING and result, left, right)

    def computed(left: Any, right: Any) -> Any:
        """Compares where the result itself is looked at; one that is no number says more than whether it holds."""
        if makes:
            return left == right
        return holding(lambda: left == right, lambda result: type(result) in _NUMBERS and result, left, right)

    def differ(left: Any, right: Any) -> Any:
        return holding(lambda: left != right, lambda result: type(result) in _COUNTING and not result, left, right)

    def holding(question: Callable[[], Any], holds: Callable[[Any], Any], left: Any, right: Any) -> Any:
        """Asks a question of the tests that holds where two values are equal; what decides that is asked before."""
        opinions = suspect(left, right)
        if opinions is None:
            return question()
        result = told(question)
        if holds(result):
            confirm(opinions)
        return result

    def suspect(left: Any, right: Any) -> list[Opinion] | None:
        """Asks the objects by which two values may be equal whether they equal other things too; None without any."""
        opinions: list[Opinion] = []
        pairs = [] if type(left) in _PLAIN and type(right) in _PLAIN else list(_pairs(left, right))
        if not pairs:
            return None
        if makes:
            for own, other, _ in pairs:
                made.ask(own, other)
        if not asks or next(left_over, None) is None:
            return []
        for own, other, sure in pairs:
            if any_value and own is getattr(sys.modules.get("unittest.mock"), "ANY", None):
                continue
            try:
                _, answer, fault = among(functools.partial(_equality, own), own, other)
            except (NotPlain, RecursionError):
                fars = _out_of_reach(other, functools.partial(operator.eq, own))
                fars += _out_of_reach(own, lambda each: each == other)  # noqa: B023
                stranger = type(_word(), (), {})()
                any_other = [_whether(operator.eq, own, each) for each in (object(), _word(), stranger)]
                itself = functools.partial(_equality, own, own)  # some take what they are first asked about for equal
                answer, _, *rest = _mixed(functools.partial(_equality, own, other), itself, *any_other, *fars)
                fault = EVERYTHING if rest[:2] == ["yes", "yes"] or "yes" in rest[2:] else ""  # as a stranger, or far
            opinions.append((own, other, sure and own is not other, answer, fault))
        return opinions

    def confirm(opinions: list[Opinion]) -> None:
        """Notes what is wrong with objects by which two values are equal, as the tests have found."""
        for own, other, sure, answer, fault in opinions:
            if answer not in ("yes", "both") and not sure and not _is_true(_answer(lambda: own == other)):  # noqa: B023
                continue  # a part, which the comparison of the whole asked in another way
            if fault or answer != "yes":
                faults.append(fault or BOTH)

    def weighed(
        question: Callable[[], Any], others: list[Callable[[], str]], fault: str, *, before: bool = True
    ) -> Any:
        """Asks a question of the tests among others in an order that nobody knows, and then as the tests do.

        If the tests get a yes, it has to be one among the others too, and all of theirs a no. Without `before` the
        others are asked afterwards.
        """
        answer, rest = "yes", [""]
        further = asks and next(left_over, None) is not None
        if further and before:
            answer, *rest = _mixed(_whether(question), *others)
        result = told(question)
        if further and _is_true(result):
            rest = rest if before else _mixed(*others)
            if answer != "yes" or "yes" in rest:
                faults.append(fault)
        return result

    def same(value: Any, wanted: Any, question: Callable[[Any, Any], Any]) -> Any:
        """Asks whether a value is as wanted; one that the solution had a say in is not as something else is."""
        if not _is_own(value) and not any(True for _ in _pairs(value, wanted)):
            return question(value, wanted)
        others = _out_of_reach(wanted, lambda each: question(value, each), lambda each: question(each, wanted))
        reads = hasattr(wanted, "__iter__")  # then asking may read the value to its end
        return weighed(lambda: question(value, wanted), others, EVERYTHING, before=not reads)

    def minus(left: Any, right: Any) -> Any:
        return reckoned(operator.sub, left, right)

    def over(left: Any, right: Any) -> Any:
        return reckoned(operator.truediv, left, right)

    def reckoned(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """Returns a difference or quotient; what an object of the solution gives depends on the other number."""
        turned = not _is_own(left)
        wanted = left if turned else 0 if _is_own(right) else right
        if (turned and not _is_own(right)) or hasattr(wanted, "__iter__"):
            return operation(left, right)

        def state(other: Any) -> str:
            return _state(operation(other, right) if turned else operation(left, other), left, right)

        answer, close, rest = "", list[Any](), [""]
        with contextlib.suppress(Exception):
            zero = [0] if isinstance(wanted, (int, float)) and operation is operator.sub else []
            close = [*zero, *sides(wanted)] if asks and zero else []
            others = [wanted, *close, *around(wanted), *further(wanted)] if asks else []
            answer, *rest = _mixed(*(functools.partial(state, each) for each in others))
            close = rest[: len(close)]
        result = told(lambda: operation(left, right))
        with contextlib.suppress(Exception):
            now = _state(result, left, right)
            alone = asks and (operation is operator.sub or (type(result) in _NUMBERS and result))
            if alone and any(all(each == now for each in some) for some in (close, rest) if some):
                faults.append("an object from which whatever is subtracted leaves the same")
            elif answer and answer != now and (wanted is left or wanted is right) and not _is_own(result):
                faults.append("an object with two answers to a difference")
        return result

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that compares two values, such as `operator.eq` or a method of unittest."""

        def compare(*args: Any, **named: Any) -> Any:
            owner = [function.__self__] if isinstance(function, types.MethodType) and len(args) == 1 else []
            pair = (*owner, *args[:2])
            if named or len(pair) != 2:
                return function(*args, **named)
            return holding(
                lambda: function(*args), lambda result: result is True or (result is None and not owner), *pair
            )

        return compare

    def called(mock: Any, name: str, *given: Any, **named: Any) -> bool:
        """Asks a mock of the tests by its class, whatever the solution put into it, what it was called with."""
        kind = getattr(sys.modules.get("unittest.mock"), "NonCallableMock", ())
        if not isinstance(mock, kind):
            getattr(mock, name)(*given, **named)
            return True
        calls = [(args, suspect(args, given)) for *_, args, _ in mock.mock_calls]
        own = any(opinions is not None for _, opinions in calls)
        (told if own else _now)(lambda: getattr(type(mock), name)(mock, *given, **named))
        for args, opinions in calls:
            if opinions and _is_true(args == given):
                confirm(opinions)
        return True

    def doubted(value: Any) -> Any:
        opinions = suspect(value, value)
        if opinions is not None:
            answers.append("d")
        confirm(opinions or [])
        return value

    def order(names: tuple[str, ...], *values: Any) -> bool:
        return all(map(ordered, names, values, values[1:]))

    def ordered(name: str, left: Any, right: Any) -> bool:
        ask, against = getattr(operator, name), getattr(operator, _AGAINST[name])
        if not _is_own(left) and not _is_own(right):
            return bool(ask(left, right))
        others = [_whether(against, left, right), *([_whether(ask, right, left)] if name in ("lt", "gt") else [])]
        if type(right) in _PLAIN:  # nothing is both at one end of all numbers and at the other
            turned = getattr(operator, name.translate(_OPPOSITE))
            others.append(_whether(lambda: ask(left, _END * _SIDE[name]) and turned(left, -_END * _SIDE[name])))
        return bool(weighed(lambda: ask(left, right), others, "an object that gives an order and its opposite"))

    def contains(item: Any, holder: Any, denied: bool = False) -> Any:
        """Asks for an item; where the tests ask elsewhere for items that are not there, `denied`, no more than that."""
        if isinstance(holder, Iterator) and not _is_own(holder):
            return any(each is item or alike(each, item) for each in holder)
        own = _is_own(holder) and hasattr(type(holder), "__contains__")
        if own and (not asks or is_over()):
            return told(lambda: item in holder)
        opinions = items(item, holder)
        if own:  # else asking may read it to its end
            word, thing = _word(), object()
            strange = _whether(lambda: not denied and word in holder and (type(item) is str or thing in holder))
            others = [_whether(lambda each: each in holder and None, each) for each in nearby(item)]  # may be there
            result = weighed(lambda: item in holder, [strange, *others], "an object that contains everything")
        else:
            result = (told if opinions else _now)(lambda: item in holder)
        if result:
            suspect_item(item, holder, opinions)
        return result

    def items(item: Any, holder: Any) -> dict[int, list[Opinion]]:
        """Asks the items of a container of the interpreter that decide whether they are the one."""
        first = itertools.islice(holder, _MOST_PAIRS) if type(holder) in _HOLDING else ()
        opinions = {id(each): suspect(item, each) for each in first}
        return {place: each for place, each in opinions.items() if each is not None}

    def suspect_item(item: Any, holder: Any, opinions: dict[int, list[Opinion]]) -> None:
        """Suspects what an item of a container of the interpreter said when it was asked whether it is the one."""
        if (asks or makes) and (type(holder) in _SCANNED or (type(holder) in _HOLDING and len(holder) <= _MOST_PAIRS)):
            match = next((each for each in holder if item is each or item == each), item)
            confirm(opinions.get(id(match)) or suspect(item, match) or [])

    def lookup(holder: Any, name: str, item: Any, *others: Any) -> Any:
        scans = type(holder) is dict or name != "[]"
        opinions = items(item, holder) if scans else {}
        ask = (lambda: holder[item]) if name == "[]" else (lambda: getattr(holder, name)(item, *others))
        result = (told if opinions else _now)(ask)
        if scans:
            suspect_item(item, holder, opinions)
        return result

    def kind(value: Any, kinds: Any) -> bool:
        check = getattr(getattr(type(kinds), "__instancecheck__", None), "__code__", None)
        if getattr(check, "co_filename", "") != FILE:
            return isinstance(value, kinds)
        others = [_whether(lambda: isinstance(object(), kinds))]
        return bool(weighed(lambda: isinstance(value, kinds), others, "a class of which everything is an instance"))

    def twice(function: Any, value: Any, *named: str) -> Any:
        """Asks for what the tests ask for more than once."""
        if not _is_own(value):
            return function(value, *named)
        result = told(lambda: function(value, *named))
        if asks and type(result) in _COUNTING and result == result and _differs(result, function(value, *named)):
            faults.append(f"an object with two answers to {named[0] if named else function.__name__}")
        return result

    def get(value: Any, name: str) -> Any:
        return twice(getattr, value, name)

    def making(function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a class of the solution, or a method of it, that makes objects for the tests."""

        def make(*args: Any, **named: Any) -> Any:
            result = function(*args, **named)
            if _decides(result):
                made.keep(result, function, args, named)
            return result

        make.__name__ = str(getattr(function, "__name__", ""))
        return make if makes else function

    every: tuple[Callable[..., Any], ...] = (known, alike, compared, computed, differ, same, minus, over, called)
    every += (making, watched, doubted, order, contains, lookup, kind, twice, get)
    return {f"__{function.__name__}__": function for function in every}, made.are_alike


def _now(question: Callable[[], Any]) -> Any:
    return question()


def _answer(question: Callable[[], Any]) -> Any:
    """Returns the answer to a question, or the exception that it raised."""
    try:
        return question()
    except BaseException as error:
        return error


def _whether(function: Callable[..., Any], *given: Any) -> Callable[..., str]:
    """Returns a question that is answered by "yes" or "no", which gets what is not given yet."""
    return lambda *others: "yes" if function(*given, *others) else "no"


def _mixed(*questions: Callable[[], Any]) -> list[Any]:
    """Returns the answers to questions, which are asked in an order that nobody knows."""
    answers = {at: _answer(questions[at]) for at in sorted(range(len(questions)), key=lambda _: urandom(8))}
    return [answers[at] for at in range(len(questions))]


def _equality(value: Any, other: Any) -> str:
    """Returns whether an object equals a value: "yes", "no", or "both" where it says that and the contrary."""
    first, second = bool(value == other), bool(value == other)
    unequal = bool(value != other) if _tells_ne(value) else not first
    return "both" if first is not second or first is unequal else "yes" if first else "no"


def _out_of_reach(
    value: Any, ask: Callable[[Any], Any], holds: Callable[[Any], Any] = lambda _: False
) -> list[Callable[[], str]]:
    """Returns questions about values that no tolerance takes for one: about each far one, and about all near ones.

    `holds`: whether the tests take another value for it. Its own tolerance counts for what `pytest.approx` makes.
    """
    expected = getattr(value, "expected", value) if is_approximate(value) else value
    reach = holds if expected is value else lambda each: each == value
    close = []
    with contextlib.suppress(Exception):
        halves = [(each, _whether(reach, middle(expected, each))) for each in nearby(expected)]
        close = [like(value, each) for each, is_reached in halves if _answer(is_reached) != "yes"]
    near_ones = [_whether(lambda: all(_is_true(ask(each)) for each in close))] if close[1:] else []
    return [*(_whether(ask, each) for each in further(value)), *near_ones]


def _state(value: Any, *others: Any) -> str:
    """Returns what tells a value from others of its class; raises NotPlain or TypeError where that is not seen."""
    if any(value is other for other in others):
        return "it is what was given"
    with contextlib.suppress(NotPlain, RecursionError):
        return repr(encode(value, convert=True))
    return repr(encode(vars(value) or value))


def _pairs(first: Any, second: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Yields the objects that decide whether two values are equal, each with what it is compared with.

    Such a pair is surely equal where the two values are, unless an object or a set compares it in its own way.
    """
    waiting = [(first, second, True)]
    for _ in range(_MOST_PAIRS):
        if not waiting:
            return
        left, right, sure = waiting.pop()
        if type(left) in _classes(type(right))[1:]:  # then Python asks the right one first, too
            left, right = right, left
        if _decides(left):
            yield left, right, sure
        elif _decides(right):
            yield right, left, sure
        kinds = {kind for kind in _CONTAINERS if kind in _classes(type(left))}
        sure = sure and not kinds & {set, frozenset} and not _decides(left) and not _decides(right)
        parts: list[Iterable[tuple[Any, Any]]] = []
        if kinds & {set, frozenset}:
            parts.append((each, each) for each in left)
        for kind in kinds & set(_classes(type(right))):
            if kind is dict:
                parts.append((dict.get(left, key), value) for key, value in dict.items(right))
            elif kind in _SCANNED:  # backwards, as a call of a mock has its name in front, or not
                parts.append(zip(*([*kind.__iter__(each)][::-1] for each in (left, right)), strict=False))
        waiting += ((*pair, sure) for pair in itertools.islice(itertools.chain(*parts), _MOST_PAIRS))


def _is_own(value: Any) -> bool:
    """Returns whether a value is of a class that may be the solution's, whatever the class says: not the tests' own."""
    kind = type(value)
    if id(kind) not in _OWN:
        heap = (each for each in _classes(kind) if _flags(each) & _HEAP)
        own = any(not any(map(_is_of_tests, _held(each).values())) for each in heap)
        _OWN[id(kind)] = kind, own or kind in _STANDING_FOR
    return _OWN[id(kind)][1]


def _is_of_tests(value: Any) -> bool:
    return isinstance(value, types.FunctionType) and value.__code__.co_filename == "<tests>"


def _decides(value: Any) -> bool:
    """Returns whether a value decides itself what it equals."""
    written = _is_own(value) and (_is_written(value, "__eq__") or _is_written(value, "__ne__"))
    return written or type(value) in _STANDING_FOR


def _is_written(value: Any, name: str) -> bool:
    """Returns whether a comparison of a value is another than that of a class of the interpreter."""
    method = next(_held(kind)[name] for kind in _classes(type(value)) if name in _held(kind))
    return type(method) is not types.WrapperDescriptorType or method.__name__ != name


def _tells_ne(value: Any) -> bool:
    """Returns whether `!=` of a value follows from its `==`, or is its own."""
    method: Any = type(value).__ne__
    return method is object.__ne__ or _is_written(value, "__ne__")


def _is_true(result: Any) -> bool | None:
    """Returns the truth of what a comparison gave, None where it has none, as an array has."""
    try:
        return bool(result)
    except Exception:
        return None


def _word() -> str:
    """Returns a text that nobody can know."""
    return "".join(chr(0x2500 + byte) for byte in urandom(16))


def _differs(left: Any, right: Any) -> bool:
    """Returns whether two answers differ, by more than a clock goes on meanwhile."""
    if type(left) is type(right) is float:
        return abs(left - right) > _MOMENT
    return type(left) is not type(right) or left != right
