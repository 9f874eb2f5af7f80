"""The tests' end of the channel: requests to the solution's sandbox out, values and exceptions in.

Every answer is read strictly (`guest.values`); what is no proper answer ends the conversation. An argument that the
solution changed in place is changed here too, as a test of a function that sorts in place expects.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import builtins
import io
import sys
from collections import deque
from types import CoroutineType, MemberDescriptorType
from typing import Any

from grpo.rewards.code.guest.arguments import update
from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late
from grpo.rewards.code.guest.errors import Errors, is_own, there
from grpo.rewards.code.guest.failures import Failures
from grpo.rewards.code.guest.frozen import Answers
from grpo.rewards.code.guest.functions import Functions, awaited
from grpo.rewards.code.guest.handles import Handle, Inside, Unjudgeable, inside
from grpo.rewards.code.guest.heard import say
from grpo.rewards.code.guest.kept import changes, kept, stands_for, texts_of
from grpo.rewards.code.guest.module import Globals, Solution
from grpo.rewards.code.guest.standing import Standing
from grpo.rewards.code.guest.twins import Twins
from grpo.rewards.code.guest.values import (
    MOST_SHARED,
    PLACES,
    Codec,
    Malformed,
    Unsendable,
    Wire,
    attributes,
    is_enumeration,
    member,
    size,
)

TESTS = "tests"
_MOST_KEPT, _LONGEST_KEPT = 24, 4000
_QUESTIONS = frozenset({"get", "kind", "number", "items", "held", "isinstance", "issubclass", "type"})
_UNHELD = 4  # references to a container that nobody has but the list of those that are shared
_IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_CHANGING = frozenset({"__setitem__", "__delitem__", *(f"__i{name}__" for name in _IN_PLACE)})
_LONG_ANSWER = 2**16  # bytes; before one that long, what is too large is the tests' own
_IDENTIFIED = (list, dict, set, bytearray, deque, io.StringIO, io.BytesIO)
_FAULTS = (Malformed, LookupError, TypeError, ValueError, AttributeError, RecursionError)


class Remote:
    """The other sandbox.

    Args:
        channel: the socket to it.
        plain_classes: classes of the tests whose instances cross by value, by name.
        entry_point: the function under test, which is not taken for a class by its name alone; "" if unknown.
        classes: the globals of the solution that the tests use as no function is used.
        consistent: repeat the first answer to each question; see `guest.twins`.

    Attributes:
        dead: why nothing more can be asked: "late", "gone" or "garbled"; "" while all is well.
        failures: what failed in the unit that runs.
        objects_used: the tests use objects of the solution as such, by attributes that no data has; so what they do
            with one may change another.
        apart: the solution runs elsewhere, so that what it raises is known.
        pinned: what assertions that ask for one value stand in. Where answers are consistent, they prove nothing.
    """

    def __init__(
        self,
        channel: Channel,
        plain_classes: dict[str, type],
        entry_point: str = "",
        classes: frozenset[str] = frozenset(),
        *,
        consistent: bool = False,
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
        self._codec = Codec(self._refer, self._resolve, plain_classes, trusted=True, owner=self)
        self._errors = Errors(self, plain_classes)
        self._shared: dict[int, tuple[Any, str]] = {}
        self._globals: list[Any] = []
        self._serial = 0
        self._data: dict[int, Any] = {}
        self.hashes: dict[int, int] = {}
        self._plain_classes = plain_classes
        self._entry_point = entry_point
        self._classes = classes
        self._functions = Functions(self._plain)
        self._theirs: dict[int, Any] = {}
        self._given_back = False
        self._handles: dict[int, Handle] = {}
        self._values: Globals | None = None
        self.twins = Twins(consistent=consistent)
        self.pinned: Any = _Passed(self) if consistent else self

    def loaded(self, names: list[str]) -> dict[str, Any] | str:
        """Waits for the solution to load; returns those of its globals that are asked for, or why it did not load.

        Raises:
            Gone, Late, Garbled: it does not answer.
        """
        answer = self._receive()
        try:
            if answer[0] != "ready":
                kinds, _, given, *_ = answer[1]
                name = kinds[0] if type(kinds[0]) is str else kinds[0][0]
                return f"{name}: {', '.join(str(self._codec.read(wire)) for wire in given)}"
            _, wires, shared = answer[:3]
            found = {name: self._codec.read(wires[name]) for name in names if name in wires}
            self._share_globals(found, names, shared)
            for name, value in list(found.items()):
                if type(value) is Handle and inside(value).is_class and self._looks_like_a_class(name):
                    constructing = found[name] = inside(value).copied()
                    inside(constructing).constructs = True
                    inside(constructing).certain = name in self._classes
                    if name == "Solution":
                        self.twins.without_state(inside(value).number)
                elif type(value) is Handle and not inside(value).is_class:
                    self.twins.function(inside(value).number)
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
        self._named = [number]
        mark = self.failures.mark()
        raised: BaseException | None = None
        try:
            result, raised, serial = self._asked(kind, number, name, given, named)
            if type(raised) is _Own:
                raised = self.failures.given(mark, raised.args[0]) or RuntimeError("an exception that was not given")
            elif raised is None:
                self._share(result, PLACES * serial)
            if kind in ("make", "set") or self.objects_used:
                for place, each in enumerate([*given, *named.values()][: PLACES - 1], start=1):
                    self._share(each, PLACES * serial + place)
        finally:
            self.failures.returned(mark, raised)
            if _acts(kind, name):
                self._forget()
        if raised is not None:
            self._raised.append(raised)
            raise raised
        return result

    def _asked(
        self, kind: str, number: int, name: str, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, BaseException | None, int]:
        """Asks for one thing to be done; returns what came of it, a value or an exception, and its serial number."""
        if self.dead:
            raise Gone
        self._given_back = False
        shared = self._still_shared()
        handed = [*(self._shared[serial][0] for serial in shared), *given, *named.values()]
        self._serial += 1
        serial = self._serial
        try:
            wires = self._codec.write_all([self._ahead(each) for each in handed])
            containers = self._codec.containers
            self._send([kind, number, name, wires, list(named), self._first, shared, serial])
            own = wires[len(shared) :]
            key = self.twins.question(kind, number, name, own, list(named), acts=_acts(kind, name))
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
                _, told, own, changed, text = answer
                raised = self._errors.made(told) if own is None else _Own(own)
            if changed is not None:
                pairs = list(zip(handed, self._codec.read_all(changed), strict=True))
                containers = self._codec.containers
            if raised is None:
                result = self.twins.answered(key, wire, self._codec.read_all([wire], containers)[0])
                if type(result) is Handle and kind in ("make", "get"):
                    self._known(kind, number, name, own, list(named), result)
            if changed is not None:
                identified = issubclass(type(result), _IDENTIFIED) or self._is_own(type(result))
                back = [pair for pair in pairs if result is pair[1] and identified]
                theirs = pairs if self._later is None else self._not_given(pairs, len(shared), given, named)
                self._update(theirs)
                at_once = {id(old) for old, _ in theirs}
                if self._later is None or (back and id(back[0][0]) in at_once):
                    result = back[0][0] if back else result
                else:
                    self._later.extend(pair for pair in pairs if id(pair[0]) not in at_once)
                    self._returned.extend((result, old) for old, _ in back[:1])
            self._beside(*text)
        except _FAULTS as fault:
            raise self._ended("garbled", Garbled("an answer cannot be read")) from fault
        return result, raised, serial

    def _known(self, kind: str, number: int, name: str, wires: list[Wire], named: list[str], result: Handle) -> None:
        """Notes where an object comes from."""
        if kind == "make":
            self.twins.made(number, wires, named, inside(result).number)
        else:
            self.twins.has(number, name, inside(result).number)

    def standing(self, number: int) -> Standing:
        """Returns which numbers an object may stand for, after what it and those like it have said."""
        return self.twins.standing(number)

    def answers(self, number: int) -> Answers:
        """Returns what an object has said since the tests last did something with it."""
        return self._answers.setdefault(number, Answers())

    def _forget(self) -> None:
        """Forgets what those objects said that were just used; where the tests use objects as such, what any said."""
        for number in list(self._answers) if self.objects_used else self._named:
            answers = self._answers.pop(number, None)
            if answers and answers.items and answers.items.once:
                self.answers(number).items = answers.items  # what was taken of an iterator is not there any more

    def module(self, found: dict[str, Any], space: dict[str, Any], imported: list[str]) -> Solution:
        """Returns the solution as a module, and keeps what it and the tests have of its globals up to date."""
        made = Solution(found, lambda name, value: self.ask("global", 0, name, (value,), {}))
        self._values = Globals(found, space, made, imported)
        return made

    def _beside(self, printed: Any, values: list[Any], said: list[Any]) -> None:
        """Takes what came with an answer: what the solution printed, its globals that changed, what it let be heard."""
        if printed:
            sys.stdout.write(str(printed))
        for name, wire in values:
            if self._values is not None:
                self._values.now(name, self._fresh().read(wire))
        for line in said:
            say(line, self._errors.class_of)

    def begin_unit(self) -> None:
        """Begins a unit, for all of whose calls together the solution has its processor time."""
        self._first = True
        self.failures.begin()
        self._raised, self._returned = [], []

    @property
    def changed(self) -> bool:
        """Whether a question had two answers."""
        return self.twins.changed

    def caused(self, error: BaseException | None) -> bool:
        """Returns whether the solution raised that in this unit."""
        return any(error is one for one in self._raised)

    def identical(self, one: Any, other: Any) -> bool:
        """Returns whether two values are one object; an argument that came back is, whatever the way it went."""
        if one is other:
            return True
        sides = [each if type(each) is Handle else stands_for(each) for each in (one, other)]
        if sides[0] is not None and sides[1] is not None:
            return inside(sides[0]).number == inside(sides[1]).number
        pairs = [pair for pair in self._returned if pair[0] is one or pair[0] is other]
        return any((one is back and other is given) or (other is back and one is given) for back, given in pairs)

    def type_of(self, value: Any) -> Any:
        """Returns the class of a value; of an object of the solution a stand-in, which is no built-in class."""
        stand_in = value if type(value) is Handle else stands_for(value)
        if stand_in is None:
            return type(value)
        kind = inside(stand_in).ask("type", "")
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
            result = function(*given, **keywords)
            if type(result) is CoroutineType and result.cr_code is not Remote._coroutine.__code__:
                result = awaited(result)
            answer = ["returned", self._codec.write(result)]
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            if type(error).__module__ == TESTS:
                self._errors.note(type(error))
            self.failures.entered(error)
            stand_in = there(error)
            number = None if stand_in is None else inside(stand_in).number
            answer = ["raised", kinds, [self._plain(item) for item in error.args], self.failures.last, number]
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
        stand_in = there(value) if is_own(value) or isinstance(value, BaseException) else None
        if stand_in is not None:
            return ["h", inside(stand_in).number]
        if isinstance(value, type) and issubclass(value, BaseException):
            self._errors.note(value)
            return ["E", [base.__name__ for base in value.__mro__]]
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
            return self._functions.function(value)
        if hasattr(kind, "__next__") and not hasattr(kind, "read"):
            return ["I", self._functions.number_of_iterator(value)]
        raise Unjudgeable(f"the tests pass a {kind.__name__}, which does not cross")

    def _resolve(self, tag: str, wire: list[Any], codec: Codec) -> Any:
        if tag in ("h", "a", "H"):
            _, number, name, is_class, kinds = wire
            if type(number) is not int or type(name) is not str or type(is_class) is not bool:
                raise Malformed("not an object")
            if tag == "a":
                return self._coroutine(number)
            if kinds:
                return self._errors.class_of(kinds)
            handle = self._handle(number, name, is_class)
            self._named.append(number)
            inside(handle).holds = tag == "H" or inside(handle).holds
            return handle
        if tag == "k":
            return self._functions[wire[1]]
        if tag == "x":
            return self._errors.made(wire[1:])
        if tag == "I":
            return self._functions.iterator(wire[1])
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
        return Codec(self._refer, self._resolve, self._plain_classes, trusted=True, owner=self)

    def stand_in(self, number: int, name: str, *, is_class: bool) -> Handle:
        """Returns the stand-in of an object, for the exception or data that it is too."""
        return self._handle(number, name, is_class)

    def read_part(self, wire: Wire) -> Any:
        """Returns what an exception or a member holds."""
        return self._fresh().read(wire)

    def number_of(self, value: Any) -> tuple[int, list[str]] | None:
        """Returns the number of data that is an object of the solution too."""
        stand_in = stands_for(value)
        return None if stand_in is None else (inside(stand_in).number, texts_of(value))

    def numbered(self, number: Any, texts: Any, wire: Wire, plain: Any) -> Any:
        """Returns data that is an object of the solution too; of what cannot change, the same each time."""
        if type(number) is not int or type(texts) is not list or not all(type(name) is str for name in texts):
            raise Malformed("not an object")
        known = self._data.get(number)
        if known is not None and repr(known[0]) == repr(wire):
            return known[1]
        made = kept(plain, self._handle(number, "", False), texts)
        if not changes(plain):
            self._data[number] = (wire, made)
        return made

    def _share_globals(self, found: dict[str, Any], names: list[str], shared: list[Any]) -> None:
        """Keeps the containers among the globals of the solution the same on both sides."""
        for place, name in enumerate(names, start=1):
            if -place in shared and issubclass(type(found.get(name)), _IDENTIFIED):
                self._globals.append(found[name])
                self._shared[-place] = (found[name], "")

    def _share(self, result: Any, serial: int) -> None:
        """Keeps a container that the solution returned or was given the same on both sides while the tests have it."""
        if not issubclass(type(result), _IDENTIFIED) or size(result) > MOST_SHARED:
            return
        if any(result is one for one, _ in self._shared.values()):
            return
        said = self._said(result)
        if len(said) <= _LONGEST_KEPT:
            self._shared[serial] = (result, said)
        kept_on = [serial for serial in self._shared if serial > 0]
        for serial in kept_on[:-_MOST_KEPT]:
            del self._shared[serial]

    def _still_shared(self) -> list[int]:
        """Returns the serials of what is shared: what the tests still have, or have just changed."""
        for serial, (one, said) in list(self._shared.items()):
            if serial > 0 and sys.getrefcount(one) <= _UNHELD and self._said(one) == said:
                del self._shared[serial]
        return list(self._shared)

    def _said(self, one: Any) -> str:
        """Returns what a container holds, as a text to be compared."""
        try:
            return repr(self._fresh().write(one))
        except (Unsendable, RecursionError, TypeError, Unjudgeable):
            return ""

    def _ahead(self, value: Any) -> Any:
        """Returns what the solution has made of a value in this assertion, which shows to the tests after it."""
        return next((new for old, new in reversed(self._later or ()) if old is value), value)

    @staticmethod
    def _not_given(
        pairs: list[tuple[Any, Any]], shared: int, given: tuple[Any, ...], named: dict[str, Any]
    ) -> list[tuple[Any, Any]]:
        """Returns the changes of what is shared and was no argument of the call, which show at once."""
        arguments = [*given, *named.values()]
        return [pair for pair in pairs[:shared] if not any(pair[0] is each for each in arguments)]

    def _looks_like_a_class(self, name: str) -> bool:
        """Returns whether the tests name a global as they would name a class.

        A solution may put a class where a function is asked for, so that it is a class says nothing yet.
        """
        bare = name.lstrip("_")
        return name in self._classes or (name != self._entry_point and bare[:1].isupper() and "_" not in bare)

    def _is_own(self, kind: Any) -> bool:
        """Returns whether a class is one that the prompt defines."""
        return self._plain_classes.get(kind.__name__) is kind


class _Passed:
    """What an assertion stands in that has passed already.

    Args:
        remote: holds back changes of arguments in an assertion.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def __enter__(self) -> None:
        """Begins it."""
        self._remote.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        failed = isinstance(error, AssertionError) and not self._remote.caused(error)
        self._remote.__exit__(*((None, None, None) if failed else (kind, error, trace)))
        return failed


def _acts(kind: str, name: str) -> bool:
    """Returns whether a request may change something."""
    return kind not in _QUESTIONS and not (kind == "op" and name not in _CHANGING)


class _Own(BaseException):
    """Stands for an exception of the tests that the solution let through."""
