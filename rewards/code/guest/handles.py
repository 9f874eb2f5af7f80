"""The solution's objects as the tests see them: stand-ins that ask the other sandbox and never believe it blindly.

Theory of operation. What the solution returns crosses by value where it is plain data. What is not stays in the other
sandbox and is a `Handle` here. A handle answers no question that a test could take for a verdict: it never equals
plain data, whatever its class over there says, has no order beside plain data, and takes part in no arithmetic with
it. Two handles may be compared over there: both are the solution's, so the answer is its own business in any case.
Tests that name a class of the solution test that class and its operators. Only for objects that the tests make of it
are operators with plain data passed on, and the methods that data have too; and what comes of an operator with plain
data stays a handle that is no number, because `abs(answer - 0.5) < 1e-6` must not be the solution's to decide.

An object that the tests did not make answers each question once (`guest.frozen`), until the tests do something with it.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from grpo.rewards.code.guest.decoys import MOST_AGREED, shuffled
from grpo.rewards.code.guest.failures import Failures
from grpo.rewards.code.guest.frozen import Answers, Items
from grpo.rewards.code.guest.standing import Standing
from grpo.rewards.code.guest.values import DATA_METHODS

_SPECIAL = frozenset({"__name__", "__doc__", "__wrapped__", "__dict__", "__annotations__", "__bases__", "__mro__"})
_SPECIAL |= {"__qualname__", "__members__", "__slots__", "__code__", "__defaults__", "__match_args__"}
_OF_THE_LANGUAGE: Any = (types.GeneratorType, types.AsyncGeneratorType, types.FunctionType, types.MethodType)
_OF_THE_LANGUAGE += (types.BuiltinFunctionType, enumerate, filter, map, reversed, zip)
_LANGUAGE: dict[str, Any] = {kind.__name__: kind for kind in _OF_THE_LANGUAGE}
_OF_NUMBERS = frozenset({"real", "imag", "numerator", "denominator"})
_CHANGES = frozenset({"add", "append", "clear", "discard", "extend", "insert", "remove", "reverse", "sort", "update"})
_TELLING_OF_DATA = _OF_NUMBERS | {"startswith", "endswith", "count", "index", "find", "rfind", "rindex"}
ENDED = "__grpo_ended__"
"""Begins the arguments of an exception that would have ended an iterator."""
_COLLECTIONS = (list, dict, set, frozenset, tuple)


class Unjudgeable(BaseException):
    """The tests do something that cannot cross between the sandboxes; nothing follows about the solution."""


class Asked(Protocol):
    """What a handle needs of the other sandbox; see `guest.remote.Remote`."""

    objects_used: bool
    hashes: dict[int, int]
    dead: str

    def ask(self, kind: str, number: int, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Asks for one thing to be done, and returns or raises what came of it."""

    @property
    def failures(self) -> Failures:
        """What failed in the unit that runs."""

    def standing(self, number: int) -> Standing:
        """Returns which numbers an object may stand for, after what it and those like it have said."""

    def answers(self, number: int) -> Answers:
        """Returns what an object has said since the tests last did something with it."""


class Inside:
    """What a handle stands for.

    Attributes:
        remote: the sandbox that has the object.
        number: the object's number there.
        name: the `__name__` of a function or class, else "".
        is_class: it is a class.
        constructs: it is a class that the tests name.
        tested: the tests made it, by calling such a class or by an operator on what they made. The same object is not
            tested where a function or a method returned it.
        language: its class where that is one of the language's own, once somebody asked.
        mixed: it came of an operator with plain data.
        own: the stand-in of the same object that is tested, if there is one.
        used: the tests have used it as no data can be used.
        certain: it is a class that the tests use as no function is used, or the tests made it of one.
        steps: it continues a generator, and may end it.
        holds: it is a list, dictionary, set or tuple too, which compares with plain data by what it holds.
    """

    __slots__ = (
        "certain",
        "constructs",
        "holds",
        "is_class",
        "language",
        "mixed",
        "name",
        "number",
        "own",
        "remote",
        "steps",
        "tested",
        "used",
    )

    def __init__(self, remote: Asked, number: int, name: str, is_class: bool) -> None:
        self.remote = remote
        self.number = number
        self.name = name
        self.is_class = is_class
        self.certain = False
        self.constructs = False
        self.tested = False
        self.mixed = False
        self.used = False
        self.language: Any = None
        self.own: Handle | None = None
        self.holds = False
        self.steps = False

    def made(self, result: Any) -> Any:
        """Returns a result; an object that the tests made of what they test is tested too."""
        if (self.tested or self.constructs) and type(result) is Handle:
            its = inside(result)
            if its.own is None:
                its.own = its.copied()
                inside(its.own).tested = True
                inside(its.own).certain = self.certain
            return its.own
        return result

    def _again(self) -> bool:
        """Asks an iterator to begin again; returns False for one of the language's own, which does not."""
        return self.language_class() is Handle and type(self.ask("op", "__iter__")) is Handle

    def copy_of(self, result: Any) -> Any:
        """Returns a copy of the object; that of one that the tests made is theirs too."""
        return self.made(result) if self.tested else result

    def copied(self) -> Handle:
        """Returns another stand-in of the same object."""
        copy = Inside(self.remote, self.number, self.name, self.is_class)
        copy.constructs, copy.tested, copy.own = self.constructs, self.tested, self.own
        copy.holds, copy.certain = self.holds, self.certain
        return Handle(copy)

    def ask(self, kind: str, name: str, *given: Any) -> Any:
        """Asks the other sandbox to do something with the object."""
        return self.remote.ask(kind, self.number, name, given, {})

    @property
    def live(self) -> bool:
        """Whether the object may answer the same question anew: the tests made it, or name it."""
        return self.tested or self.constructs

    def answer(self, kind: str, name: str, *given: Any) -> Any:
        """Asks for what does not change the object."""
        if self.live:
            return self.ask(kind, name, *given)
        return self.remote.answers(self.number).once(kind, name, given, lambda: self.ask(kind, name, *given))

    def language_class(self) -> Any:
        """Returns the class of what it stands for, for `isinstance`; a stand-in's own for what nobody knows."""
        if self.language is None:
            named = "" if self.is_class or self.remote.dead else self.ask("kind", "")
            known = _LANGUAGE | {"str": str} if self.tested else _LANGUAGE
            self.language = known.get(named, Handle) if type(named) is str else Handle
        return self.language

    def items(self) -> Any:
        """Returns the items of the object, to be iterated over."""
        answers = self.remote.answers(self.number)
        if answers.items is None:
            iterator = self.ask("op", "__iter__")
            if type(iterator) is not Handle:
                seen = list(iterator)
                answers.items = Items(lambda count: (True, seen, None), once=False)
            else:
                same = inside(iterator).number == self.number
                answers.items = Items(lambda count: _some(iterator, count), once=same, again=self._again)
            answers.agree()
        return answers.items


def inside(handle: Handle) -> Inside:
    """Returns what a handle stands for."""
    found: Inside = object.__getattribute__(handle, "_inside")
    return found


class Pattern(type):
    """The class of what stands for a class of the solution in a `match` statement, which takes classes only."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, vars(cls)["stand_in"])

    @property
    def __match_args__(cls) -> Any:
        return getattr(vars(cls)["stand_in"], "__match_args__", ())


class Patterns:
    """The classes of `match` statements by the names that tests have for them.

    Args:
        space: the globals of the tests.
    """

    def __init__(self, space: dict[str, Any]) -> None:
        self._space = space

    def __getattr__(self, name: str) -> Any:
        value = self._space[name]
        if type(value) is not Handle:
            return value
        made = Pattern(name, (), {})
        type.__setattr__(made, "stand_in", value)
        return made


def _unary(name: str, *, numeric: bool = False) -> Callable[[Handle], Any]:
    def ask(self: Handle) -> Any:
        its = inside(self)
        if numeric and its.mixed and not its.certain:
            raise TypeError(f"{name} of what an operator of the solution made of plain data")
        return its.answer("op", name)

    return ask


def _compare(name: str) -> Callable[[Handle, Any], Any]:
    def compare(self: Handle, other: Any) -> Any:
        if type(other) is not Handle:
            held = inside(self).ask("held", "") if inside(self).holds else None
            if type(held) in _COLLECTIONS:
                return getattr(held, name)(other)
            return _tells(name, self, other) if inside(self).tested else NotImplemented
        if inside(self).number == inside(other).number and name in ("__eq__", "__ne__"):
            return name == "__eq__"
        if inside(self).live or inside(other).live:
            return _said_of_both(name, self, other)
        return _compared(name, self, other)

    return compare


def _tells(name: str, self: Handle, other: Any) -> Any:
    """Compares an object that the tests made with plain data; one that agrees with any data agrees with none.

    Raises:
        TypeError: which is the greater cannot be left to the object.
    """
    its = inside(self)
    if name not in ("__eq__", "__ne__"):
        if its.certain:
            claim = its.ask("op", name, other) is True
            return its.remote.standing(its.number).claimed(name, other, claim)
        return its.remote.standing(its.number).ordered(name, other, lambda value: its.ask("op", name, value) is True)
    values, place = shuffled(other)
    said = [its.ask("op", "__eq__", value) is True for value in values]
    equal = said[place] and sum(said) <= 1 + MOST_AGREED
    return equal if name == "__eq__" else not equal


def _said_of_both(name: str, one: Handle, other: Handle) -> bool:
    """Compares two objects as their class says, which says it twice, and not of both that they are equal and not.

    Raises:
        TypeError: it says one thing and then another.
    """
    said = inside(one).ask("op", name, other)
    again = inside(one).ask("op", name, other)
    if type(said) is bool and said is not again:
        raise TypeError(f"{name} of two objects of the solution is one thing and then another")
    if name == "__ne__" and said is True and inside(one).ask("op", "__eq__", other) is True:
        raise TypeError("two objects of the solution are equal and not equal")
    return said is True


def _compared(name: str, one: Handle, other: Handle) -> bool:
    """Compares two objects that the tests did not make: numbers as such, others so that the answers agree."""
    numbers = [inside(each).answer("number", "") for each in (one, other)]
    if all(type(number) in (int, float) for number in numbers):
        return bool(getattr(operator, name)(*numbers))
    if name == "__ne__":
        return not _compared("__eq__", one, other)
    yes = inside(one).answer("op", name, other) is True
    if yes and name in ("__lt__", "__gt__"):
        return inside(other).answer("op", name, one) is not True
    return yes


def _operator(name: str) -> Callable[[Handle, Any], Any]:
    def operate(self: Handle, other: Any) -> Any:
        its = inside(self)
        plain = type(other) is not Handle
        if plain and not its.tested:
            return NotImplemented
        result = its.made(its.ask("op", name, other))
        live = its.live or (not plain and inside(other).live) or its.remote.objects_used
        if type(result) is not Handle and not live:
            raise TypeError(f"{name} of two objects of the solution gave plain data")
        mixed = plain or its.mixed or inside(other).mixed
        if mixed and type(result) is Handle:
            result = inside(result).copied()
            inside(result).mixed = True
        elif mixed and not its.certain:
            if not plain or its.mixed:
                raise TypeError(f"{name} of what an operator of the solution made of plain data")
            return its.remote.standing(its.number).calculated(name, other, lambda value: its.ask("op", name, value))
        return result

    return operate


class Handle:
    """An object of the solution, which stays in the other sandbox."""

    __slots__ = ("_inside",)

    def __init__(self, *given: Any) -> None:
        if len(given) != 1 or type(given[0]) is not Inside:
            raise Unjudgeable("the tests derive a class from one of the solution's")
        object.__setattr__(self, "_inside", given[0])

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        raise Unjudgeable("the tests derive a class from one of the solution's")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of what it stands for, where that is one of the language's own: a generator, a function."""
        return inside(self).language_class()

    def __getattr__(self, name: str) -> Any:
        its = inside(self)
        if name == "__name__" and its.name:
            return its.name
        if name[:2] == "__" and name not in _SPECIAL:
            raise AttributeError(name)
        asked = name in DATA_METHODS and not (its.live or its.used or name in _CHANGES)
        if asked and (its.own is None or name in _TELLING_OF_DATA or name[:2] == "is"):
            found = None if name in _OF_NUMBERS else its.answer("get", name)
            if found is None or type(found) is Handle:
                raise AttributeError(f"'{name}': the solution returned an object that is no plain data")
            return found
        if its.live or its.is_class:
            its.remote.objects_used = True
            return its.ask("get", name)
        found = its.answer("get", name)
        its.used = its.used or (name[:2] != "__" and name not in DATA_METHODS)
        its.remote.objects_used = its.remote.objects_used or name[:2] != "__"
        if name in ("send", "throw") and type(found) is Handle:
            inside(found).steps = True
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        inside(self).ask("set", name, value)

    def __delattr__(self, name: str) -> None:
        inside(self).ask("delete", name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        its = inside(self)
        try:
            result = its.remote.ask("make" if its.constructs else "call", its.number, "", given, named)
        except RuntimeError as error:
            if its.steps and error.args[:1] == (ENDED,):
                raise StopIteration(*error.args[1:]) from None
            raise
        return its.made(result) if its.constructs else result

    def __hash__(self) -> int:
        its = inside(self)
        if its.number not in its.remote.hashes:
            its.remote.hashes[its.number] = hash(its.ask("op", "__hash__"))
        return its.remote.hashes[its.number]

    def __contains__(self, item: Any) -> bool:
        its = inside(self)
        if its.live or its.used:
            return its.ask("op", "__contains__", item) is True
        return any(item is each or item == each for each in self)

    def __iter__(self) -> Iterator[Any]:
        its = inside(self)
        if not its.live:
            return iter(its.items())
        iterator = its.ask("op", "__iter__")
        return _items(iterator) if type(iterator) is Handle else iter(iterator)

    def __next__(self) -> Any:
        if not inside(self).live:
            answers = inside(self).remote.answers(inside(self).number)
            answers.items = answers.items or Items(lambda count: _some(self, count), once=True)
            return next(iter(answers.items))
        ended, items, value = _some(self, 1)
        if ended and not items:
            raise StopIteration(*([] if value is None else [value]))
        return items[0]

    def __getitem__(self, key: Any) -> Any:
        its = inside(self)
        found = its.answer("op", "__getitem__", key)
        return found if its.live else its.remote.answers(its.number).at(key, found)

    def __len__(self) -> int:
        its = inside(self)
        length: int = its.answer("op", "__len__")
        if not its.live:
            with contextlib.suppress(TypeError):  # it may have a length and no items
                its.items()
            its.remote.answers(its.number).length(length)
        return length

    def __setitem__(self, key: Any, value: Any) -> None:
        inside(self).ask("op", "__setitem__", key, value)

    def __delitem__(self, key: Any) -> None:
        inside(self).ask("op", "__delitem__", key)

    def __instancecheck__(self, instance: Any) -> bool:
        its = inside(self)
        if not its.is_class:
            raise TypeError("isinstance() arg 2 must be a type")
        if type(instance) is Handle:
            return its.ask("isinstance", "", instance) is True
        is_row = isinstance(instance, tuple) and hasattr(instance, "_fields") and type(instance).__name__ == its.name
        return is_row or (hasattr(instance, "__grpo_there__") and its.ask("isinstance", "", instance) is True)

    def __subclasscheck__(self, kind: Any) -> bool:
        its = inside(self)
        if not its.is_class:
            raise TypeError("issubclass() arg 2 must be a class")
        return type(kind) is Handle and its.ask("issubclass", "", kind) is True

    def __round__(self, *digits: Any) -> Any:
        its = inside(self)
        if its.mixed and not its.certain:
            raise TypeError("__round__ of what an operator of the solution made of plain data")
        return its.answer("op", "__round__", *digits)

    def __format__(self, form: str) -> str:
        return str(inside(self).answer("op", "__format__", form))

    def __enter__(self) -> Any:
        its = inside(self)
        result = its.ask("enter", "")
        return its.made(result) if type(result) is Handle and inside(result).number == its.number else result

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return self._left("exit", kind, error)

    def _left(self, question: str, kind: Any, error: Any) -> bool:
        """Ends a `with` block; returns whether the solution may keep what left it."""
        its = inside(self)
        given = None if error is None else ([base.__name__ for base in kind.__mro__], list(map(_told, error.args)))
        failed = its.remote.failures.failed(error)
        try:
            ended = its.ask(question, "", given)
            return bool(ended) and not failed
        except Exception:
            if failed:
                return False  # the failure goes on, and not what the solution would have instead of it
            raise

    def __deepcopy__(self, memory: Any) -> Any:
        its = inside(self)
        return self if its.is_class else its.copy_of(its.ask("copy", "deepcopy"))

    def __copy__(self) -> Any:
        its = inside(self)
        return self if its.is_class else its.copy_of(its.ask("copy", "copy"))

    def __set_name__(self, owner: Any, name: str) -> None:
        raise Unjudgeable("the tests put an object of the solution into a class of theirs")

    async def __aenter__(self) -> Any:
        its = inside(self)
        result = its.ask("aenter", "")
        return its.made(result) if type(result) is Handle and inside(result).number == its.number else result

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return self._left("aexit", kind, error)

    def __aiter__(self) -> Any:
        return inside(self).ask("op", "__aiter__")

    async def __anext__(self) -> Any:
        found = inside(self).ask("anext", "")
        if type(found) is not list or not found:
            raise StopAsyncIteration
        return found[0]


Handle.__doc__ = property(lambda self: inside(self).ask("get", "__doc__"))  # type: ignore[assignment]
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Handle, f"__{_name}__", _compare(f"__{_name}__"))
for _name in [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
    "divmod",
]:
    setattr(Handle, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(Handle, f"__r{_name}__", _operator(f"__r{_name}__"))
    setattr(Handle, f"__i{_name}__", _operator(f"__i{_name}__"))
for _name in ("str", "repr", "reversed", "bool", "bytes", "dir"):
    setattr(Handle, f"__{_name}__", _unary(f"__{_name}__"))
for _name in ("neg", "pos", "invert", "abs", "int", "float", "index", "complex", "floor", "ceil", "trunc"):
    setattr(Handle, f"__{_name}__", _unary(f"__{_name}__", numeric=True))


def _told(value: Any) -> Any:
    """What an exception of the tests was given, as far as the solution needs to know."""
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


def _some(iterator: Handle, count: int) -> tuple[bool, list[Any], Any]:
    """Returns whether the iterator has ended, its next items, and with what it ended."""
    answer = inside(iterator).ask("items", "", count)
    if type(answer) is not tuple or len(answer) != 3 or type(answer[1]) is not list or len(answer[1]) > count:
        raise TypeError("the solution's iterator gave no items")
    if not answer[0] and not answer[1]:
        raise TypeError("the solution's iterator gave no item and no end")
    return answer[0] is True, answer[1], answer[2]


def _items(iterator: Handle) -> Generator[Any, None, Any]:
    """Yields the items of an iterator of an object that the tests made; returns with what it ended."""
    return (yield from Items(lambda count: _some(iterator, count), once=False))
