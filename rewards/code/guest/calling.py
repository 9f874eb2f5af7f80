"""Runs tests that call functions with plain data, with the functions in another sandbox.

Nothing of the solution ever runs here, and only plain data arrives, in exact built-in types. So a comparison is
Python's own, on values that cannot have an opinion.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import sys
import time
from typing import Any

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, orders, reporter
from grpo.rewards.code.guest.customs import customary
from grpo.rewards.code.guest.loading import line_of, new_module
from grpo.rewards.code.guest.plain import Malformed, NotPlain, decode, encode
from grpo.rewards.code.guest.units import Stop, asking, asserting, is_skip, same

_LAST_WORD = 0.2


class Solution:
    """The functions of the solution, and what is known of the unit that calls them.

    Args:
        in_place: what a call does to its arguments shows here, as the tests look at them afterwards.
        numbers: the tests say nothing of what is not a number, so that an answer that is none is wrong.
        names: the tests say nothing of names that are not defined, so that such a program is wrong whatever they catch.

    Attributes:
        dead: why the solution answers no more: "gone", "late", "garbled", or "".
        raised: what its last call raised.
        wrong: why the unit cannot pass any more, or "".
        other: what an answer of the unit was that is no plain data, or "".
    """

    def __init__(self, channel: Channel, in_place: bool, numbers: bool, names: bool) -> None:
        self._channel = channel
        self._in_place, self._numbers, self._names = in_place, numbers, names
        self.dead = ""
        self.begin()

    def begin(self) -> None:
        """Forgets the unit before."""
        self.wrong = self.other = ""
        self.raised: BaseException | None = None
        self._begins = True

    def function(self, name: str) -> Any:
        """Returns a function that calls the solution's of that name."""

        def call(*args: Any, **named: Any) -> Any:
            try:
                request = [name, [encode(each) for each in args], {key: encode(each) for key, each in named.items()}]
            except NotPlain as error:
                raise TypeError(f"the tests give {error} to {name}") from None
            return self._read(self.exchange([*request, self._begins]), [*args, *named.values()])

        call.__name__ = call.__qualname__ = name
        return call

    def exchange(self, request: list[Any] | None) -> Any:
        """Sends a request, if there is one, and returns the next message; notes why there is none.

        Raises:
            Gone, Late, Garbled: there is none.
        """
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
        """Returns the value of an answer, or raises what the call raised."""
        value, raised = None, None
        try:
            kind, *parts, changed = answer
            if self._in_place:
                for place, wire in changed:
                    _become(arguments[place], decode(wire))
            if kind == "value":
                value = decode(parts[0])
            elif kind == "other":
                value = Other(parts[1] is True)
                self.other = f"the answer is {str(parts[0])[:200]}, and no plain data"
            else:
                kinds, held, line = parts
                raised = _exception(kinds, [decode(each) for each in held])
        except (Malformed, TypeError, ValueError, IndexError) as error:
            self.dead = "garbled"
            raise Garbled from error
        if raised is not None:
            self.raised = raised
            if self._names and "NameError" in kinds:
                self.wrong = str(line)[:200]
            raise raised
        if self._numbers and _has_nan(value):
            self.wrong = "the answer is not a number"
        return value


class Other:
    """An answer that is no plain data: it is true or not, equals nothing but itself and has nothing to ask for."""

    def __init__(self, truth: bool) -> None:
        self._truth = truth

    def __bool__(self) -> bool:
        return self._truth


def _exception(kinds: list[str], held: list[Any]) -> BaseException:
    """Returns an exception of the first built-in class of those names."""
    for name in kinds:
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            if issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
                return RuntimeError(f"the solution raised {name}")  # else it would end a loop of the tests
            with contextlib.suppress(Exception):
                return kind(*held)
    return Exception(*held)


def _become(old: Any, new: Any) -> None:
    """Gives a container the content of another one; containers in it that are at the same place stay what they are."""
    if type(old) is not type(new):
        raise Malformed("an argument of another type")
    if isinstance(old, list):
        kept = [_merged(one, two) for one, two in zip(old, new, strict=False)]
        old[:] = [*kept, *new[len(kept) :]]
    elif isinstance(old, bytearray):
        old[:] = new
    elif isinstance(old, (dict, set)):
        content = {key: _merged(old.get(key), each) for key, each in new.items()} if isinstance(old, dict) else new
        old.clear()
        old.update(content)


def _merged(old: Any, new: Any) -> Any:
    if type(old) is not type(new) or not isinstance(new, (list, dict, set)):
        return new
    _become(old, new)
    return old


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_nan, value))


def main(descriptor: int) -> None:
    """Runs the tests against the functions at the other end of a descriptor and reports on them."""
    given = orders()
    report = reporter(given.nonce)
    channel = Channel(descriptor, trusted=True)
    channel.deadline = time.monotonic() + given.seconds
    solution = Solution(channel, given.in_place, given.numbers, "NameError" not in given.source)
    try:
        loaded = solution.exchange(None)
        if loaded != ["ready"]:
            report(["load", "raised", str(loaded[1:2])[2:-2]])
        else:
            report(_run(given, solution, channel, report))
    except (Gone, Late, Garbled):
        report(["load", solution.dead, ""])
    if solution.dead == "gone":
        time.sleep(_LAST_WORD)  # the other sandbox is stopped when this one ends, and how it ended by itself matters


def _run(given: Any, solution: Solution, channel: Channel, report: Any) -> list[Any]:
    """Runs the tests and reports how their units ended; returns the last line of the report."""
    ask, has_changed, forget = asking(given.replay)
    true, enter, begin_assertions, fault_of = asserting(given.sure, given.reaching)
    began, running = time.monotonic(), -1
    asked: dict[int, tuple[Any, Any]] = {}

    def begin(unit: int) -> bool:
        nonlocal began, running
        if not given.first <= unit <= given.last:
            return False
        solution.begin()
        begin_assertions()
        began, running = time.monotonic(), unit
        channel.deadline = began + given.seconds
        return True

    def ended(unit: int, error: BaseException | None) -> None:
        if isinstance(error, Stop):
            raise error
        how, why, seconds = "passed", "", time.monotonic() - began
        if solution.dead:
            how = solution.dead
        elif solution.wrong:
            how, why = "failed", solution.wrong
        elif error is not None and not (is_skip(error) and error is not solution.raised):
            if isinstance(error, ModuleNotFoundError) and error is not solution.raised:
                report(["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"])
                raise Stop
            how, why = "raised" if error is solution.raised else "failed", solution.other or line_of(error)
        elif error is None and fault_of(unit):
            how, why = "failed", fault_of(unit)
        report(["unit", unit, how, why, seconds, has_changed()])
        channel.deadline = time.monotonic() + given.seconds
        if solution.dead or (given.stop and how != "passed"):
            raise Stop

    def ask_first(function: Any, *args: Any, **named: Any) -> Any:
        """Asks, and keeps the first question of each unit."""
        if running >= 0 and running not in asked:
            with contextlib.suppress(NotPlain):
                asked[running] = function, encode([args, named])
        return ask(function, *args, **named)

    def ask_again() -> None:
        """Asks the first question of each unit once more, when no test can be disturbed by that any more."""
        for unit, (function, wire) in asked.items():
            solution.begin()
            channel.deadline = time.monotonic() + given.seconds
            args, named = decode(wire)
            with contextlib.suppress(Exception, Gone, Late):
                ask(function, *args, **named)
            if has_changed():
                report(["changed", unit])

    module = new_module()
    vars(module).update({name: solution.function(name) for name in given.names})
    space: dict[str, Any] = {"__name__": "tests", "__builtins__": sys.modules["builtins"]}
    try:
        code = compile(given.setup, "<setup>", "exec", dont_inherit=True)
        space.update(customary(code))
        exec(code, space)
    except Exception as error:
        return ["unjudged", f"the definitions before the tests raise {line_of(error)}"]
    space.update({name: vars(module)[name] for name in given.names}, __begin__=begin, __ended__=ended, __near__=same)
    space.update(__ask__=ask_first, __true__=true, __enter__=enter, __forget__=forget)
    try:
        exec(compile(given.source, "<tests>", "exec", dont_inherit=True), space)
    except Stop:
        return ["stopped", solution.dead]
    except ModuleNotFoundError as error:
        if error is not solution.raised:
            return ["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"]
        return ["broken", line_of(error)]
    except BaseException as error:
        return ["broken", solution.dead or line_of(error)]
    if not given.replay:
        ask_again()
    return ["done"]
