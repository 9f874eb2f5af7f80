"""Runs tests that call functions with plain data, with the functions in another sandbox.

Nothing of the solution ever runs here, and only plain data arrives, in exact built-in types. So a comparison is
Python's own, on values that cannot have an opinion.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import builtins
import io
import math
import sys
import time
import types
from typing import Any

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, given
from grpo.rewards.code.guest.customs import SOLUTION_MODULES, customary
from grpo.rewards.code.guest.loading import line_of
from grpo.rewards.code.guest.plain import Malformed, NotPlain, decode, encode
from grpo.rewards.code.guest.reporting import reporter
from grpo.rewards.code.guest.units import Stop, asking, asserting, is_skip, same

_LAST_WORD = 0.2


class Solution:
    """The functions of the solution, and what is known of the unit that calls them.

    Args:
        channel: the socket to the solution.
        in_place: what a call does to its arguments shows here, as the tests look at them afterwards.
        numbers: the tests say nothing of what is not a number, so that an answer that is none is wrong.
        names: the tests say nothing of names that are not defined, so that such a program is wrong whatever they catch.

    Attributes:
        dead: why the solution answers no more: "gone", "late", "garbled", or "".
        raised: what its last call raised.
        wrong: why the unit cannot pass any more, or "".
        other: what an answer of the unit was that is no plain data, or "".
        begins: the next call is the first of a unit.
    """

    def __init__(self, channel: Channel, in_place: bool, numbers: bool, names: bool) -> None:
        self._channel = channel
        self._in_place, self._numbers, self._names = in_place, numbers, names
        self.dead = self.wrong = self.other = ""
        self.raised: BaseException | None = None
        self.begins = False

    def function(self, name: str) -> Any:
        """Returns a function that calls the solution's of that name."""

        def call(*args: Any, **named: Any) -> Any:
            return self._call(name, args, named)

        call.__name__ = call.__qualname__ = name
        return call

    def receive(self) -> Any:
        """Returns the next message; notes why there is none.

        Raises:
            Gone, Late, Garbled: there is none.
        """
        try:
            return self._channel.receive()
        except (Gone, Late, Garbled) as error:
            self.dead = type(error).__name__.lower()
            raise

    def _call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            request = [name, [encode(each) for each in args], {key: encode(each) for key, each in named.items()}]
        except NotPlain as error:
            raise TypeError(f"the tests give {error} to {name}") from None
        if self.dead:
            raise Gone
        try:
            self._channel.send([*request, self.begins])
        except (Gone, Late) as error:
            self.dead = type(error).__name__.lower()
            raise
        self.begins = False
        answer = self.receive()
        try:
            value, fault = self._read(answer, [*args, *named.values()])
        except (Malformed, TypeError, ValueError, IndexError) as error:
            self.dead = "garbled"
            raise Garbled from error
        if fault is not None:
            raise fault
        return value

    def _read(self, answer: Any, arguments: list[Any]) -> tuple[Any, BaseException | None]:
        """Returns the value of an answer, and what the call raises instead."""
        kind, *parts, changed = answer
        if self._in_place:
            for place, wire in changed:
                _become(arguments[place], decode(wire))
        if kind == "value":
            [wire] = parts
            value = decode(wire)
            if self._numbers and _has_nan(value):
                self.wrong = "the answer is not a number"
            return value, None
        if kind == "other":
            self.other = f"the answer is {str(parts[0])[:200]}, and no plain data"
            return Other(parts[1] is True), None
        kinds, held, _ = parts
        self.raised = _exception(kinds, [decode(each) for each in held])
        if self._names and "NameError" in kinds:
            self.wrong = str(parts[2])[:200]
        return None, self.raised


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
            try:
                return kind(*held)
            except Exception:
                continue
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
    elif isinstance(old, dict):
        kept_items = {key: _merged(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(kept_items)
    elif isinstance(old, set):
        old.clear()
        old.update(new)


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


class Nowhere(io.TextIOBase):
    """Takes what the tests print."""

    def write(self, text: str) -> int:
        return len(text)


def from_input(descriptor: int) -> None:
    """Does what the standard input says; see `main`."""
    main(descriptor, **given())


def main(
    descriptor: int,
    nonce: str,
    setup: str,
    source: str,
    *,
    names: list[str],
    numbers: bool,
    in_place: bool,
    sure: list[list[int]],
    reaching: list[int],
    first: int,
    last: int,
    seconds: float,
    stop: bool,
    replay: int,
) -> None:
    """Runs tests against the functions at the other end of a descriptor and reports on them.

    Args:
        descriptor: the socket to the solution's sandbox.
        nonce: begins every line of the report.
        setup: trusted definitions that the tests may use.
        source: the tests, as `instrument` prepares them.
        names: the functions of the solution that the tests call.
        numbers: see `Solution`.
        in_place: see `Solution`.
        sure: see `asserting`.
        reaching: likewise.
        first: the first unit to run.
        last: the last one.
        seconds: wall time of one unit, and of loading.
        stop: end at the first unit that fails.
        replay: see `asking`.
    """
    report = reporter(nonce)
    sys.stdout = sys.stderr = Nowhere()
    channel = Channel(descriptor, trusted=True)
    channel.deadline = time.monotonic() + seconds
    solution = Solution(channel, in_place, numbers, "NameError" not in source)
    try:
        loaded = solution.receive()
    except (Gone, Late, Garbled):
        report(["load", solution.dead, ""])
        time.sleep(_LAST_WORD if solution.dead == "gone" else 0)
        return
    if loaded != ["ready"]:
        report(["load", "raised", str(loaded[1:2])[2:-2]])
        return
    ask, anew, forget = asking(replay, apart=True)
    true, enter, begin_assertions, fault = asserting(sure, reaching)
    began = [0.0]

    def begin(unit: int) -> bool:
        if not first <= unit <= last:
            return False
        anew()
        solution.wrong, solution.other, solution.raised, solution.begins = "", "", None, True
        begin_assertions()
        began[0] = time.monotonic()
        channel.deadline = began[0] + seconds
        return True

    def ended(unit: int, error: BaseException | None) -> None:
        if isinstance(error, Stop):
            raise error
        how, why, seconds_taken = "passed", "", time.monotonic() - began[0]
        raised, wrong = solution.raised, solution.wrong
        changed = not solution.dead and anew()
        if solution.dead:
            how = solution.dead
        elif wrong:
            how, why = "failed", wrong
        elif error is not None and not (is_skip(error) and error is not raised):
            how, why = "raised" if error is raised else "failed", solution.other or line_of(error)
            if isinstance(error, ModuleNotFoundError) and error is not raised:
                report(["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"])
                raise Stop
        elif error is None and fault(unit):
            how, why = "failed", fault(unit)
        report(["unit", unit, how, why, seconds_taken, changed])
        channel.deadline = time.monotonic() + seconds
        if solution.dead or (stop and how != "passed"):
            raise Stop

    space: dict[str, Any] = {"__name__": "tests", "__builtins__": sys.modules["builtins"]}
    report(
        _run(
            setup,
            source,
            space,
            {name: solution.function(name) for name in names},
            solution,
            begin,
            ended,
            ask,
            true,
            enter,
            forget,
        )
    )
    if solution.dead == "gone":
        time.sleep(_LAST_WORD)  # the other sandbox is stopped when this one ends, and how it ended by itself matters


def _run(
    setup: str, source: str, space: dict[str, Any], functions: dict[str, Any], solution: Solution, *judge: Any
) -> list[Any]:
    """Runs the tests; returns the last line of the report."""
    try:
        if setup:
            code = compile(setup, "<setup>", "exec", dont_inherit=True)
            space.update(customary(code))
            exec(code, space)
    except Exception as error:
        return ["unjudged", f"the definitions before the tests raise {line_of(error)}"]
    module = types.ModuleType("solution")
    vars(module).update(functions)
    for name in SOLUTION_MODULES:
        sys.modules[name] = module
    space.update(functions)
    names = ("__begin__", "__ended__", "__ask__", "__true__", "__enter__", "__forget__")
    space.update(zip(names, judge, strict=True), __near__=same)
    try:
        exec(compile(source, "<tests>", "exec", dont_inherit=True), space)
    except Stop:
        return ["stopped", solution.dead]
    except ModuleNotFoundError as error:
        if error is not solution.raised:
            return ["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"]
        return ["broken", line_of(error)]
    except BaseException as error:
        return ["broken", solution.dead or line_of(error)]
    return ["done"]
