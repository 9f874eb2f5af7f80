"""The tests' end of the channel: requests to the solution's sandbox out, values and exceptions in.

Every answer is read strictly (`guest.values`); what is no proper answer ends the conversation. An argument that the
solution changed in place is changed here too, as a test of a function that sorts in place expects.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import builtins
import itertools
import sys
from collections import deque
from types import CoroutineType, MemberDescriptorType
from typing import Any

from grpo.rewards.code.guest.arguments import update
from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late
from grpo.rewards.code.guest.failures import Failures
from grpo.rewards.code.guest.frozen import Answers
from grpo.rewards.code.guest.handles import Handle, Inside, Unjudgeable, inside
from grpo.rewards.code.guest.values import (
    Codec,
    Malformed,
    Unsendable,
    Wire,
    attributes,
    is_enumeration,
    member,
)

TESTS = "tests"
_MOST_TAKEN = 1000
_TEXT = "__grpo_text__"
_ERRORS_OF_MODULES = {
    "FrozenInstanceError": "dataclasses",
    "JSONDecodeError": "json",
    "InvalidOperation": "decimal",
    "DivisionByZero": "decimal",
    "StatisticsError": "statistics",
    "Empty": "queue",
    "Full": "queue",
}
_QUESTIONS = frozenset({"get", "kind", "number", "items", "held", "isinstance", "issubclass", "type"})
_IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_CHANGING = frozenset({"__setitem__", "__delitem__", *(f"__i{name}__" for name in _IN_PLACE)})
_LONG_ANSWER = 2**16  # bytes; before one that long, what is too large is the tests' own
_IDENTIFIED = (list, dict, set, bytearray, deque)
_FAULTS = (Malformed, LookupError, TypeError, ValueError, AttributeError, RecursionError)


class Remote:
    """The other sandbox.

    Args:
        channel: the socket to it.
        plain_classes: classes of the tests whose instances cross by value, by name.
        entry_point: the function under test, which is not taken for a class by its name alone; "" if unknown.
        classes: the globals of the solution that the tests use as no function is used.

    Attributes:
        dead: why nothing more can be asked: "late", "gone" or "garbled"; "" while all is well.
        failures: what failed in the unit that runs.
        objects_used: the tests use objects of the solution as such, by attributes that no data has; so what they do
            with one may change another.
        apart: the solution runs elsewhere, so that what it raises is known.
    """

    def __init__(
        self,
        channel: Channel,
        plain_classes: dict[str, type],
        entry_point: str = "",
        classes: frozenset[str] = frozenset(),
    ) -> None:
        self.channel = channel
        self.dead = ""
        self._raised: list[BaseException] = []
        self.failures = Failures()
        self.objects_used = False
        self._answers: dict[int, Answers] = {}
        self._named: list[int] = []
        self._returned: list[tuple[Any, Any]] = []
        self.apart = True
        self._later: list[tuple[Any, Any]] | None = None
        self._first = True
        self._codec = Codec(self._refer, self._resolve, plain_classes, trusted=True)
        self._plain_classes = plain_classes
        self._entry_point = entry_point
        self._classes = classes
        self._functions: list[Any] = []
        self._iterators: dict[int, tuple[Any, Any]] = {}
        self._theirs: dict[int, Any] = {}
        self._given_back = False
        self._errors: dict[str, type[BaseException]] = {}
        self._handles: dict[int, Handle] = {}

    def loaded(self, names: list[str]) -> dict[str, Any] | str:
        """Waits for the solution to load; returns those of its globals that are asked for, or why it did not load.

        Raises:
            Gone, Late, Garbled: it does not answer.
        """
        answer = self._receive()
        try:
            if answer[0] != "ready":
                _, kinds, _, given, *_ = answer
                return f"{kinds[0]}: {', '.join(str(self._codec.read(wire)) for wire in given)}"
            wires: dict[str, Wire] = answer[1]
            wires = {name: wires[name] for name in names if name in wires}
            errors = [(name, wire[4]) for name, wire in wires.items() if _is_error(wire)]
            for name, kinds in sorted(errors, key=lambda error: len(error[1])):
                self._errors[name] = type(name, (self._error_type(kinds),), {"__str__": _told})
            found = {
                name: self._errors[name] if _is_error(wire) else self._codec.read(wire) for name, wire in wires.items()
            }
            for name, value in list(found.items()):
                if type(value) is Handle and inside(value).is_class and self._looks_like_a_class(name):
                    constructing = found[name] = inside(value).copied()
                    inside(constructing).constructs = True
                    inside(constructing).certain = name in self._classes
            return found
        except _FAULTS as error:
            raise self._ended("garbled", Garbled("what it loaded cannot be read")) from error

    def ask(self, kind: str, number: int, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Asks for one thing to be done, and returns or raises what came of it.

        Raises:
            Gone, Late, Garbled: it does not answer.
            Unjudgeable: an argument is of a kind that cannot cross.
            BaseException: what the solution raised, as the built-in exception that it derives from.
        """
        acts = kind not in _QUESTIONS and not (kind == "op" and name not in _CHANGING)
        self._named = [number]
        mark = self.failures.mark()
        raised: BaseException | None = None
        try:
            result, raised = self._asked(kind, number, name, given, named)
            if type(raised) is _Own:
                raised = self.failures.given(mark, raised.args[0]) or RuntimeError("an exception that was not given")
        finally:
            self.failures.returned(mark, raised)
            if acts:
                self._forget()
        if raised is not None:
            self._raised.append(raised)
            raise raised
        return result

    def _asked(
        self, kind: str, number: int, name: str, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, BaseException | None]:
        """Asks for one thing to be done; returns what came of it: a value, or an exception."""
        if self.dead:
            raise Gone
        self._given_back = False
        handed = [*given, *named.values()]
        try:
            wires = self._codec.write_all(handed)
            containers = self._codec.containers
            self._send([kind, number, name, wires, list(named), self._first])
        except (Unsendable, ValueError, MemoryError) as error:
            if self.channel.longest < _LONG_ANSWER:
                raise Unjudgeable(f"the tests pass what does not cross: {error}") from error
            raise TypeError(f"what the solution returned does not go back: {error}") from error
        except RecursionError as error:
            if self._plain_classes and not self._given_back:
                raise Unjudgeable("the tests pass a structure that is too deep or goes round") from error
            raise
        self._first = False
        result, raised = None, None
        answer = self._receive()
        while answer[0] == "callback":
            self._called_back(answer)
            answer = self._receive()
        try:
            if answer[0] == "value":
                _, wire, changed, text = answer
            else:
                _, kinds, said, said_of, held, own, changed, text = answer
                values = [self._fresh().read(each) for each in said_of]
                raised = self._error(kinds, said, values, held) if own is None else _Own(own)
            if changed is not None:
                pairs = list(zip(handed, self._codec.read_all(changed), strict=True))
                containers = self._codec.containers
            if raised is None:
                result = self._codec.read_all([wire], containers)[0]
            if changed is not None:
                identified = type(result) in _IDENTIFIED or self._is_own(type(result))
                back = [pair for pair in pairs if result is pair[1] and identified]
                if self._later is None:
                    self._update(pairs)
                    result = back[0][0] if back else result
                else:
                    self._later.extend(pairs)
                    self._returned.extend((result, old) for old, _ in back[:1])
            if text:
                sys.stdout.write(str(text))
        except _FAULTS as fault:
            raise self._ended("garbled", Garbled("an answer cannot be read")) from fault
        return result, raised

    def answers(self, number: int) -> Answers:
        """Returns what an object has said since the tests last did something with it."""
        return self._answers.setdefault(number, Answers())

    def _forget(self) -> None:
        """Forgets what those objects said that were just used; where the tests use objects as such, what any said."""
        for number in list(self._answers) if self.objects_used else self._named:
            answers = self._answers.pop(number, None)
            if answers and answers.items and answers.items.once:
                self.answers(number).items = answers.items  # what was taken of an iterator is not there any more

    def begin_unit(self) -> None:
        """Begins a unit, for all of whose calls together the solution has its processor time."""
        self._first = True
        self.failures.begin()
        self._raised, self._returned = [], []

    def caused(self, error: BaseException | None) -> bool:
        """Returns whether the solution raised that in this unit."""
        return any(error is one for one in self._raised)

    def identical(self, one: Any, other: Any) -> bool:
        """Returns whether two values are one object; an argument that came back is, whatever the way it went."""
        if one is other:
            return True
        if type(one) is Handle and type(other) is Handle:
            return inside(one).number == inside(other).number
        pairs = [pair for pair in self._returned if pair[0] is one or pair[0] is other]
        return any((one is back and other is given) or (other is back and one is given) for back, given in pairs)

    def type_of(self, value: Any) -> Any:
        """Returns the class of a value; of an object of the solution a stand-in, which is no built-in class."""
        if type(value) is not Handle:
            return type(value)
        kind = inside(value).ask("type", "")
        return kind if type(kind) is Handle and inside(kind).name not in vars(builtins) else Handle

    def __enter__(self) -> None:
        """Begins an assertion: what the solution does to its arguments shows only when it has been decided.

        Else a solution that empties its argument would pass `assert ordered(items) == sorted(items)`.
        """
        self._later = []

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.failures.left(error)
        self.show()
        self._later = None

    def show(self) -> None:
        """Shows the tests what the solution did to its arguments in an assertion."""
        later, self._later = self._later or [], []
        self._update(later)

    def _update(self, pairs: list[tuple[Any, Any]]) -> None:
        """Makes arguments what the solution left of them."""
        mutable = frozenset(kind for kind in self._plain_classes.values() if not is_enumeration(kind))
        for old, new in pairs:
            update(old, new, 0, mutable, set())

    def _called_back(self, message: list[Any]) -> None:
        """Calls a function of the tests for the solution."""
        try:
            _, number, wires, named = message
            function = self._functions[number]
            given = [self._codec.read(wire) for wire in wires]
            keywords = {key: self._codec.read(named[key]) for key in named}
        except _FAULTS as fault:
            raise self._ended("garbled", Garbled("a call cannot be read")) from fault
        try:
            answer = ["returned", self._codec.write(function(*given, **keywords))]
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            if type(error).__module__ == TESTS:
                self._errors.setdefault(kinds[0], type(error))
            self.failures.entered(error)
            answer = ["raised", kinds, [self._plain(item) for item in error.args], self.failures.last]
        self._send(answer)

    def _plain(self, value: Any) -> Wire:
        """Returns the wire form of an argument of an exception; of what does not cross, its text."""
        try:
            return self._fresh().write(value)
        except (Unsendable, RecursionError, Unjudgeable):
            return str(value)

    def _send(self, message: list[Any]) -> None:
        try:
            self.channel.send(message)
        except (Gone, Late) as error:
            raise self._ended("gone" if isinstance(error, Gone) else "late", error) from None

    def _receive(self) -> list[Any]:
        try:
            message = self.channel.receive()
        except (Gone, Late) as error:
            raise self._ended("gone" if isinstance(error, Gone) else "late", error) from None
        except Garbled as error:
            raise self._ended("garbled", error) from None
        if type(message) is not list or not message:
            raise self._ended("garbled", Garbled("not an answer"))
        return message

    def _ended(self, why: str, error: BaseException) -> BaseException:
        self.dead = self.dead or why
        return error

    def _refer(self, value: Any, codec: Codec) -> Wire:
        if type(value) is Handle:
            self._named.append(inside(value).number)
            return ["h", inside(value).number]
        kind = type(value)
        if isinstance(value, BaseException):
            return ["x", [base.__name__ for base in kind.__mro__], [self._plain(item) for item in value.args]]
        held = attributes(value) if self._plain_classes.get(kind.__name__) is kind else None
        if held is not None:
            self._given_back = self._given_back or id(value) in self._theirs
            known = codec.known(value)
            if known is not None:
                return known
            codec.note(value)
            parts = codec.part()
            return ["o", kind.__name__, [[name, parts.write_part(item)] for name, item in held.items()]]
        if type(value) is CoroutineType and value.cr_code is Remote._coroutine.__code__:
            raise TypeError("a coroutine of the solution, which nothing has awaited, is no argument")
        if callable(value):
            self._functions.append(value)
            name = getattr(value, "__name__", "")
            return ["k", len(self._functions) - 1, name if type(name) is str else ""]
        if hasattr(kind, "__next__") and not hasattr(kind, "read"):
            return ["I", self._iterator(value)]
        raise Unjudgeable(f"the tests pass a {kind.__name__}, which does not cross")

    def _iterator(self, value: Any) -> int:
        """Returns the number of a function that takes so many more items of an iterator of the tests."""
        for number, (known, _) in self._iterators.items():
            if known is value:
                return number

        def take(count: Any) -> Any:
            taken = list(itertools.islice(value, min(count, _MOST_TAKEN)))
            return taken, len(taken) < count

        self._functions.append(take)
        self._iterators[len(self._functions) - 1] = (value, take)
        return len(self._functions) - 1

    def _resolve(self, tag: str, wire: list[Any], codec: Codec) -> Any:
        if tag in ("h", "a", "H"):
            _, number, name, is_class, _ = wire
            if type(number) is not int or type(name) is not str or type(is_class) is not bool:
                raise Malformed("not an object")
            if tag == "a":
                return self._coroutine(number)
            handle = self._handle(number, name, is_class)
            self._named.append(number)
            inside(handle).holds = tag == "H" or inside(handle).holds
            return handle
        if tag == "k":
            return self._functions[wire[1]]
        if tag == "x":
            _, kinds, said, wires, held = wire
            return self._error(kinds, said, [self._fresh().read(each) for each in wires], held)
        if tag == "I":
            return self._iterators[wire[1]][0]
        if tag == "o":
            _, name, pairs = wire
            return self._object(self._plain_classes[name], pairs, codec)
        if tag == "m":
            _, name, chosen, wire_value = wire
            kind = self._plain_classes[name]
            if not is_enumeration(kind):
                raise Malformed("a member of what is no enumeration")
            return member(kind, chosen, self._fresh().read(wire_value))
        raise Malformed(f"no value has the tag {tag!r}")

    def _handle(self, number: int, name: str, is_class: bool) -> Handle:
        """Returns the stand-in of an object, the same one each time, as `is` would have it."""
        known = self._handles.get(number)
        if known is None or inside(known).is_class is not is_class:
            known = self._handles[number] = Handle(Inside(self, number, name, is_class))
        return known

    async def _coroutine(self, number: int) -> Any:
        """Runs a coroutine of the solution to its end."""
        return self.ask("await", number, "", (), {})

    def _object(self, kind: type, pairs: list[list[Any]], codec: Codec) -> Any:
        """Returns an instance of a class of the tests; what the class computes cannot be replaced by attributes.

        What it has computed and remembered itself (`functools.cached_property`) is left out, and computed again here.
        """
        made: Any = object.__new__(kind)
        codec.containers.append(made)
        parts = codec.part()
        for name, wire in pairs:
            of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
            if name.startswith("__") or callable(of_class) or isinstance(of_class, property):
                raise Malformed("an attribute that the class has")
            if isinstance(of_class, MemberDescriptorType):
                of_class.__set__(made, parts.read_part(wire))
            elif not hasattr(type(of_class), "__get__"):
                vars(made)[name] = parts.read_part(wire)
        self._theirs[id(made)] = made
        return made

    def _fresh(self) -> Codec:
        """Returns what writes and reads what an exception or a member holds: nothing is shared there."""
        return Codec(self._refer, self._resolve, self._plain_classes, trusted=True)

    def _looks_like_a_class(self, name: str) -> bool:
        """Returns whether the tests name a global as they would name a class.

        A solution may put a class where a function is asked for, so that it is a class says nothing yet.
        """
        bare = name.lstrip("_")
        return name in self._classes or (name != self._entry_point and bare[:1].isupper() and "_" not in bare)

    def _error(self, kinds: list[str], said: Any, values: list[Any], held: list[list[Any]]) -> BaseException:
        kind = self._error_type(kinds)
        if kinds[0] not in self._errors and kind.__name__ != kinds[0] and _is_public(kinds[0]):
            kind = type(kinds[0], (kind,), {"__str__": _told})
        if issubclass(kind, StopIteration | StopAsyncIteration):
            kind = RuntimeError  # it would end a loop of the tests, and the assertions in it
        try:
            error: BaseException = _unmade(kind, values) if self._is_own(kind) else kind(*values)
        except Exception:
            error = _unmade(kind, values)
        if self._is_own(kind):
            known = set(dir(type(error)))
            vars(error).update({key: self._fresh().read(wire) for key, wire in held if key not in known})
        if vars(type(error)).get("__str__") is _told:
            known = set(dir(type(error)))
            vars(error).update({key: self._fresh().read(wire) for key, wire in held if key not in known})
            vars(error)[_TEXT] = said if type(said) is str else ""
        return error

    def _is_own(self, kind: Any) -> bool:
        """Returns whether a class is one that the prompt defines."""
        return self._plain_classes.get(kind.__name__) is kind

    def _error_type(self, kinds: list[str]) -> Any:
        """Returns the tests' exception class for the names of the solution's, most derived first."""
        for name in kinds:
            if name in self._errors:
                return self._errors[name]
            if type(name) is str and issubclass(self._plain_classes.get(name, object), BaseException):
                return self._plain_classes[name]
            owner = sys.modules.get(_ERRORS_OF_MODULES.get(name, "builtins")) if type(name) is str else None
            known = getattr(owner, name, None) if owner else None
            if isinstance(known, type) and issubclass(known, (Exception, SystemExit)):
                return known
        return RuntimeError


class _Own(BaseException):
    """Stands for an exception of the tests that the solution let through."""


def _unmade(kind: Any, values: list[Any]) -> BaseException:
    """Returns an exception of a class that asks for other arguments than it keeps."""
    try:
        error: BaseException = kind.__new__(kind)
    except Exception:
        error = RuntimeError()
    error.args = tuple(values)
    return error


def _told(error: BaseException) -> str:
    """Returns what the solution's exception says of itself, or what any exception would."""
    said: str | None = vars(error).get(_TEXT)
    return BaseException.__str__(error) if said is None else said


def _is_public(name: Any) -> bool:
    return type(name) is str and name.isidentifier() and name[0] != "_"


def _is_error(wire: Wire) -> bool:
    return type(wire) is list and wire[0] == "h" and bool(wire[4])
