"""Exceptions of the solution as the tests see them: what it said of them in, exceptions that the tests can catch out.

An exception class of the solution is a real class here, with the bases that it has there as far as both sides know
them, so that `except` and `pytest.raises` mean what they say. What it defines beyond that (class attributes,
properties, methods) is asked for in the other sandbox, and so is a new one when the tests make it.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from grpo.rewards.code.guest.handles import ENDED, Handle, Unjudgeable
from grpo.rewards.code.guest.values import Malformed, Wire

_OF_MODULES = {
    "FrozenInstanceError": "dataclasses",
    "JSONDecodeError": "json",
    "InvalidOperation": "decimal",
    "DivisionByZero": "decimal",
    "StatisticsError": "statistics",
    "Empty": "queue",
    "Full": "queue",
}
_TEXT, _THERE = "__grpo_text__", "__grpo_there__"
_MAKING = "grpo_made_here"
_DEEPEST = 4


class Elsewhere(Protocol):
    """What exceptions need of the other sandbox; see `guest.remote.Remote`."""

    def stand_in(self, number: int, name: str, *, is_class: bool) -> Handle:
        """Returns the stand-in of an object."""

    def read_part(self, wire: Wire) -> Any:
        """Returns what an exception holds."""


class Kind(type):
    """The class of an exception class that the solution defines."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], **named: Any) -> Kind:
        """Returns a class; the tests cannot derive one from the solution's.

        Raises:
            Unjudgeable: they do.
        """
        if _MAKING not in space:
            raise Unjudgeable("the tests derive a class from one of the solution's")
        return super().__new__(mcs, name, bases, space, **named)

    def __call__(cls, *given: Any, **named: Any) -> Any:
        there = vars(cls).get(_THERE)
        if there is None:
            return super().__call__(*given, **named)
        made = there(*given, **named)
        if not isinstance(made, cls):
            raise TypeError(f"{cls.__name__} made what is none")
        return made

    def __getattr__(cls, name: str) -> Any:
        there = next((vars(kind)[_THERE] for kind in cls.__mro__ if vars(kind).get(_THERE) is not None), None)
        if there is None or name[:2] == "__":
            raise AttributeError(name)
        return getattr(there, name)


class Errors:
    """The exceptions of one solution.

    Args:
        elsewhere: the solution's sandbox.
        plain_classes: classes of the tests, by name.
    """

    def __init__(self, elsewhere: Elsewhere, plain_classes: Mapping[str, type]) -> None:
        self._elsewhere = elsewhere
        self._plain_classes = plain_classes
        self._named: dict[str, Any] = {}
        self._numbered: dict[int, Any] = {}

    def note(self, kind: type[BaseException]) -> None:
        """Notes an exception class of the tests, which may come back."""
        self._named.setdefault(kind.__name__, kind)

    def class_of(self, kinds: list[Any]) -> Any:
        """Returns the class of the tests for the names of the solution's, most derived first.

        Args:
            kinds: a name for each class that both sides know, a name and a number for one of the solution's.
        """
        found: list[Any] = []
        for place in range(len(kinds) - 1, -1, -1):
            kind = self._known(kinds[place]) or self._new(kinds[place], found)
            found = [kind, *found] if kind is not None else found
        return found[0] if found else RuntimeError

    def made(self, wire: list[Any], depth: int = 0) -> BaseException:
        """Returns the exception of its wire form (`guest.solution.Server.error`)."""
        kinds, said, wires, held, number, chain = wire
        values = [self._elsewhere.read_part(each) for each in wires]
        kind = self.class_of(kinds)
        if isinstance(kinds[0], str) and kind.__name__ != kinds[0] and _is_public(kinds[0]):
            kind = _kind(kinds[0], (kind,), None)
        if issubclass(kind, StopIteration | StopAsyncIteration):
            kind, values = RuntimeError, [ENDED, *values]  # it would end a loop of the tests, with its assertions
        prompted = self._plain_classes.get(kind.__name__) is kind
        own = isinstance(kind, Kind)
        try:
            error: BaseException = _unmade(kind, values) if prompted or own else kind(*values)
        except Exception:
            error = _unmade(kind, values)
        if own or prompted:
            known = set(dir(kind))
            vars(error).update({key: self._elsewhere.read_part(item) for key, item in held if key not in known})
        if own:
            vars(error)[_TEXT] = said if type(said) is str else ""
            if type(number) is int:
                vars(error)[_THERE] = self._elsewhere.stand_in(number, "", is_class=False)
        for note in next((item for key, item in held if key == "__notes__"), ["l", []])[1]:
            error.add_note(note if type(note) is str else "")
        if chain and depth < _DEEPEST:
            cause, context, error.__suppress_context__ = chain[0], chain[1], chain[2] is True
            error.__context__ = self.made(context, depth + 1) if context else None
            if cause:
                error.__cause__ = self.made(cause, depth + 1)
        return error

    def _known(self, named: Any) -> Any:
        """Returns the class of that name and number, if there is one."""
        if type(named) is list:
            name, number = named
            if type(name) is not str or type(number) is not int:
                raise Malformed("not a class")
            plain = self._plain_classes.get(name, object)
            return plain if issubclass(plain, BaseException) else self._numbered.get(number)
        if type(named) is not str:
            raise Malformed("not the name of a class")
        if named in self._named:
            return self._named[named]
        if issubclass(self._plain_classes.get(named, object), BaseException):
            return self._plain_classes[named]
        owner = sys.modules.get(_OF_MODULES.get(named, "builtins"))
        known = getattr(owner, named, None) if owner else None
        return known if isinstance(known, type) and issubclass(known, (Exception, SystemExit)) else None

    def _new(self, named: Any, known: list[Any]) -> Any:
        """Returns a class for one of the solution's that has not come before; None for one that is not its own."""
        if type(named) is not list:
            return None
        name, number = named
        bases: list[Any] = []
        for kind in known or [RuntimeError]:
            if not any(issubclass(base, kind) for base in bases):
                bases.append(kind)
        there = self._elsewhere.stand_in(number, name, is_class=True)
        try:
            kind = _kind(name, tuple(bases), there)
        except TypeError:  # bases that do not go together, as nobody has them
            kind = _kind(name, (bases[0],), there)
        self._numbered[number] = kind
        return kind


def is_own(value: Any) -> bool:
    """Returns whether that is an exception class of the solution."""
    return isinstance(value, Kind) and vars(value).get(_THERE) is not None


def there(value: Any) -> Handle | None:
    """Returns the stand-in of an exception of the solution, or of a class of exceptions; None for any other."""
    found: Handle | None = vars(value).get(_THERE)
    return found


def _kind(name: str, bases: tuple[type, ...], elsewhere: Handle | None) -> Any:
    """Returns an exception class that tells what the solution's exception says of itself."""
    space = {"__str__": _told, "__getattr__": _asked, _MAKING: True}
    made = Kind(name if name.isidentifier() else "Error", bases, space)
    setattr(made, _THERE, elsewhere)  # not in `space`, whose objects are told the name that they have in the class
    return made


def _asked(error: BaseException, name: str) -> Any:
    """Returns an attribute that only the solution's exception has."""
    stand_in = vars(error).get(_THERE)
    if stand_in is None or name[:2] == "__":
        raise AttributeError(f"'{type(error).__name__}' object has no attribute '{name}'")
    return getattr(stand_in, name)


def _told(error: BaseException) -> str:
    """Returns what the solution's exception says of itself, or what any exception would."""
    said: str | None = vars(error).get(_TEXT)
    return BaseException.__str__(error) if said is None else said


def _unmade(kind: Any, values: list[Any]) -> BaseException:
    """Returns an exception of a class that asks for other arguments than it keeps."""
    try:
        error: BaseException = kind.__new__(kind, *(values if issubclass(kind, BaseExceptionGroup) else ()))
    except Exception:
        error = RuntimeError()
    error.args = tuple(values)
    return error


def _is_public(name: Any) -> bool:
    return type(name) is str and name.isidentifier() and name[0] != "_" and not hasattr(builtins, name)
