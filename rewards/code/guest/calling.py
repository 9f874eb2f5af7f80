"""Runs tests that call functions with plain data, with the functions in another sandbox.

Nothing of the solution ever runs here, and only plain data arrives, in exact built-in types, so a comparison is
Python's own. This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import reprlib
import types
from collections import deque
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from decimal import Decimal
from typing import Any

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, orders
from grpo.rewards.code.guest.customs import LONGEST, new_module
from grpo.rewards.code.guest.keeping import conversing
from grpo.rewards.code.guest.plain import DEEPEST_ANSWER, Foreign, Malformed, NotPlain, containers, decode, encode
from grpo.rewards.code.guest.together import begun, run_tests
from grpo.rewards.code.guest.units import Stop, recording

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 60
_HOLDING = (list, tuple, set, frozenset, deque, KeysView, ValuesView, ItemsView)


class Solution:
    """The functions of the solution, and what is known of the unit that calls them; see `together.run_tests`.

    `channel`: the socket to it. `hear`: takes what is to be reported. `given`: the orders; with `in_place` the tests
    look at what a call does to its arguments, with `numbers` an answer that is NaN is wrong. `asked`: the calls of the
    first run. `dead`: why the solution answers no more: "gone", "late", "garbled", or "". `other`: what an answer of
    the unit was that is no plain data, or "".
    """

    def __init__(self, channel: Channel, hear: Callable[[list[Any]], Any], given: Any) -> None:
        self._channel, self._hear, self._given = channel, hear, given
        self._names = "NameError" not in given.source  # else such a program is wrong, whatever the tests catch
        self._answers: dict[str, Any] = {}  # the first to each call, where these are remembered
        self.asked, self._record, self._answered = recording()
        self.ask: Any = None  # its functions ask themselves
        self.dead = ""
        self.begin()

    def begin(self) -> None:
        """Forgets the unit before."""
        self._begins = True
        self._last: tuple[list[Any], Any] | None = None  # the last call that returned plain data, and its answer
        self.wrong = self.other = ""
        self._raised: BaseException | None = None

    def failure(self) -> tuple[str, str]:
        """Returns how and why the unit cannot pass any more."""
        return (self.dead, "") if self.dead else ("failed", self.wrong) if self.wrong else ("", "")

    def last_answer(self) -> str:
        """Returns the last call of the unit with its answer, as "add(1, 2) is 4"; "" without one."""
        if self._last is None:
            return ""
        (name, args, named), value = self._last
        given = [_brief(decode(each)) for each in args]
        given += [f"{key}={_brief(decode(each))}" for key, each in named.items()]
        return f"{name}({', '.join(given)}) is {_brief(value)}"[:LONGEST]

    def is_raised(self, error: BaseException) -> bool:
        """Returns whether an exception is what the last call raised."""
        return error is self._raised

    def forbidden_change(self) -> str:
        """Returns nothing: the solution reaches nothing here."""
        return ""

    def function(self, name: str) -> Any:
        """Returns a function that calls the solution's of that name."""

        def call(*args: Any, **named: Any) -> Any:
            try:
                request = [name, [encode(each) for each in args], {key: encode(each) for key, each in named.items()}]
            except NotPlain as error:
                given = f"the tests give {error} to {name}"
                if isinstance(error, Foreign) and not str(error).endswith(f" {Other.__name__}"):
                    self._hear(["unjudged", given])  # no answer of the solution is of such a class
                    raise Stop from None
                raise TypeError(given) from None
            value = self._read(self._answer(request), [*args, *named.values()])
            self._last = None if isinstance(value, Other) else (request, value)
            return value

        call.__name__ = call.__qualname__ = name
        return call

    def rehearse(self, requests: list[Any]) -> None:
        """Asks for answers from the last call to the first, before the tests ask for them."""
        for request in reversed(requests):  # a counter goes the other way
            self._channel.grant(self._given.seconds)
            self._begins = True
            self._answer(request)
        self._channel.grant(self._given.seconds)

    def _answer(self, request: list[Any]) -> Any:
        """Returns the first answer to an equal call, where these are remembered."""
        call = json.dumps(request)
        if call in self._answers:
            return self._answers[call]
        self._record(request)
        answer = self.exchange([*request, self._begins])
        self._answered(answer[1] if isinstance(answer, list) and len(answer) > 1 else None)
        if self._given.remembers:
            self._answers[call] = answer
        return answer

    def exchange(self, request: list[Any] | None) -> Any:
        """Sends a request, if any, and returns the next message. Raises Gone, Late, Garbled, and notes why."""
        if self.dead:
            raise Gone
        try:
            if request is not None:
                self._channel.send(request)
                self._begins = False
            return self._channel.receive()
        except (Gone, Late, Garbled) as error:
            self.dead = type(error).__name__.lower()
            raise

    def _read(self, answer: Any, arguments: list[Any]) -> Any:
        value, raised = None, None
        try:
            kind, *parts, states = answer
            if self._given.in_place:
                own = containers(arguments)
                new = [decode(each, DEEPEST_ANSWER, own) for each in states]
                for old, state in zip(own, new, strict=True):
                    if state is not None:
                        _fill(old, state)
                if self._given.numbers and has_nan(new):
                    self.wrong = "an argument that it changes is not a number"
            if kind == "value":
                value = decode(parts[0], DEEPEST_ANSWER)
            elif kind == "other":
                value = Other(parts[1] is True)
                self.other = f"the answer is {str(parts[0])[:200]}, and no plain data"
            else:
                kinds, held, text, named, line = parts
                attributes = {name: decode(each) for name, each in named.items()}
                raised = _exception(kinds, [decode(each) for each in held], text, attributes)
        except (Malformed, AttributeError, TypeError, ValueError, IndexError) as error:
            self.dead = "garbled"
            raise Garbled from error
        if raised is not None:
            self._raised = raised
            if self._names and "NameError" in kinds:
                self.wrong = str(line)[:200]
            if self._given.numbers and has_nan([raised.args, vars(raised)]):
                self.wrong = "the exception holds what is not a number"
            raise raised
        if self._given.numbers and has_nan(value):
            self.wrong = "the answer is not a number"
        return value


def _brief(value: Any) -> str:
    """Returns a value as Python writes it, cut in the middle."""
    try:
        return _BRIEF.repr(value)
    except Exception:  # an integer of more digits than Python writes
        return f"a {type(value).__name__}"


class Other:
    """An answer that is no plain data: it is true or not, equals nothing but itself and has nothing to ask for."""

    def __init__(self, truth: bool) -> None:
        self._truth = truth

    def __bool__(self) -> bool:
        return self._truth


def _exception(kinds: list[str], held: list[Any], text: Any, attributes: dict[str, Any]) -> BaseException:
    """Returns the exception of the first built-in class that can be made so, with that text and those attributes."""
    for name in (*kinds, "Exception"):
        kind: Any = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            if issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
                return RuntimeError(f"the solution raised {name}")  # else it would end a loop of the tests
            with contextlib.suppress(Exception):
                error: BaseException = kind(*held)
                if type(text) is str and str(error) != text:  # of a class with a text of its own
                    error = type(kind.__name__, (kind,), {"__str__": lambda _: text})(*held)
                vars(error).update({key: each for key, each in attributes.items() if not hasattr(error, key)})
                return error
    return Exception(*held)


def _fill(old: Any, new: Any) -> None:
    """Gives a container the content of another one."""
    if type(old) is not type(new):
        raise Malformed("an argument of another type")
    content = new.copy()
    old.clear()
    (old.update if isinstance(old, (dict, set)) else old.extend)(content)


def has_nan(value: Any) -> bool:
    """Returns whether plain data is what is not a number, or holds it."""
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (float, complex)):
        return value != value
    if isinstance(value, dict):
        value = value.items()
    return isinstance(value, _HOLDING) and any(map(has_nan, value))


def main(descriptor: int) -> None:
    """Runs the tests against the functions at the other end of a descriptor and reports on them."""
    given = orders()
    with conversing(given, Channel(descriptor)) as (keeper, channel):
        solution = Solution(channel, keeper.hear, given)
        loaded = solution.exchange(None)
        if loaded != ["ready"]:
            keeper.hear(["failed", "raised", str(loaded[1:2])[2:-2]])
            return
        module = new_module()
        if begun(given, keeper.hear, module):
            keeper.hear(["loaded"])
            vars(module).update({name: solution.function(name) for name in given.names})
            tests = types.ModuleType("test_solution")
            vars(tests).update({name: value for name, value in vars(module).items() if not name.startswith("__")})
            solution.rehearse(given.asked)
            run_tests(given, keeper.hear, tests, solution)
