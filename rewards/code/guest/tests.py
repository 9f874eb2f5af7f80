"""The trusted side of the split judge: tests in, a report on the sandbox's own output out.

Theory of operation. The tests arrive as one program in which each unit (an assertion, a test function) stands in a
`with` block that notes how it ended. Names that the solution must define are stand-ins for what is in the other
sandbox (`guest.handles`). Each ended unit is reported at once on the descriptor that was stdout, which the other
sandbox does not have, in lines that begin with a secret of the host; what the tests print goes nowhere. A unit that is
never reported counts as failed.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import io
import json
import marshal
import os
import sys
import time
import types
from _frozen_importlib_external import MAGIC_NUMBER
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, given
from grpo.rewards.code.guest.customs import SOLUTION_MODULES, Captured, customary, mentions, offer_pytest
from grpo.rewards.code.guest.failures import Failures, Guard
from grpo.rewards.code.guest.handles import Patterns, Unjudgeable
from grpo.rewards.code.guest.heard import Lines, offer_warns
from grpo.rewards.code.guest.library import offer_library
from grpo.rewards.code.guest.module import Patch
from grpo.rewards.code.guest.remote import TESTS, Remote

UNITS = "__grpo_units__"
_LAST_WORD = 0.2
_LONGEST = 300
_INFINITE = float("inf")


class Other(Protocol):
    """What `Units` needs to know of the solution's sandbox; see `guest.remote.Remote`."""

    dead: str
    failures: Failures
    apart: bool
    channel: Any

    @property
    def changed(self) -> bool: ...

    @property
    def pinned(self) -> Any: ...

    def begin_unit(self) -> None: ...

    def caused(self, error: BaseException | None) -> bool: ...

    def identical(self, one: Any, other: Any) -> bool: ...

    def type_of(self, value: Any) -> Any: ...

    def show(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...


class Stop(BaseException):
    """No further unit is to run."""


class Units:
    """The units of the tests: which run, how each ended.

    Args:
        remote: the solution's sandbox.
        report: writes one line of the report.
        first: the unit to begin with; those before it ran earlier.
        seconds: wall time of one unit.
        stop: end at the first unit that fails.
    """

    def __init__(self, remote: Other, report: Callable[[list[Any]], None], first: int, seconds: float, stop: bool):
        self._remote = remote
        self._report = report
        self._first = first
        self._seconds = seconds
        self._stop = stop
        self._open: list[int] = []
        self._began = 0.0
        self._prepared: set[type] = set()
        self.space: dict[str, Any] = {}

    @property
    def assertion(self) -> Any:
        """Holds back changes of arguments while an assertion is decided; for use in a `with` statement."""
        return self._remote

    @property
    def pinned(self) -> Any:
        """The same for an assertion that asks for one value; see `assert_pinned`."""
        return self._remote.pinned

    @property
    def patterns(self) -> Patterns:
        """The classes of `match` statements."""
        return Patterns(self.space)

    @property
    def held(self) -> Guard:
        """Notes what leaves a block before its last assertion; for use in a `with` statement."""
        return self._remote.failures.guard

    def deliberate(self, error: Any) -> Any:
        """Returns what a `raise` of the tests raises."""
        return self._remote.failures.deliberate(error)

    def identical(self, one: Any, other: Any) -> bool:
        """Returns what `one is other` would be if nothing stood between the tests and the solution."""
        return self._remote.identical(one, other)

    def step(self, value: Any) -> Any:
        """Ends a step of an assertion; what was done to arguments until then shows in the next."""
        self._remote.show()
        return value

    def type_of(self, value: Any) -> Any:
        """Returns what `type(value)` would be; see `identical`."""
        return self._remote.type_of(value)

    def wanted(self, unit: int) -> bool:
        """Returns whether a unit is to run."""
        return unit >= self._first

    def __call__(self, unit: int) -> Units:
        """Begins a unit; for use in a `with` statement, also inside another."""
        self._open.append(unit)
        return self

    def __enter__(self) -> None:
        self._began = time.monotonic()
        self._remote.begin_unit()
        self._remote.channel.deadline = self._began + self._seconds

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        unit, kept = self._open.pop(), self._remote.failures.kept
        self._remote.failures.end()
        if isinstance(error, Stop):
            return False
        fault = self._fault(error)
        if fault:
            self._report(["unjudged", fault[:_LONGEST]])
            raise Stop
        how, why = self._ending(kept or error)
        self._report(["unit", unit, how, why, time.monotonic() - self._began, self._remote.changed])
        self._remote.channel.deadline = time.monotonic() + self._seconds
        if self._remote.dead or (self._stop and how != "passed"):
            raise Stop
        return True

    def function(self, test: Any) -> None:
        """Calls a test function, once for each of its parameters, with the fixtures that it asks for.

        Raises:
            Unjudgeable: it asks for a fixture that there is not.
            BaseException: what the test raises.
        """
        for named in _parameters(getattr(test, "grpo_parameters", [])):
            self._with_fixtures(test, named)

    def method(self, kind: Any, name: str) -> None:
        """Calls one test method of a class, with what its framework calls before and after.

        Raises:
            Unjudgeable: the class needs what is not here.
            BaseException: what the test raises.
        """
        if hasattr(kind, "debug") and hasattr(kind, "assertEqual"):
            if kind not in self._prepared:
                self._prepared.add(kind)
                kind.setUpClass()
            kind(name).debug()
            return
        made = kind()
        for before in ("setup_method", "setUp", "setup"):
            if hasattr(made, before):
                _call_with_or_without(getattr(made, before), getattr(made, name))
                break
        self.function(getattr(made, name))
        if hasattr(made, "teardown_method"):
            _call_with_or_without(made.teardown_method, getattr(made, name))

    def same(self, result: Any, expected: Any, tolerance: float) -> bool:
        """Returns whether a result is the expected one, which came from JSON.

        Tuples count as lists, and whole numbers as keys of a dict as texts. Of an expected list of one item, that item
        will do as well: data sets wrap results so.
        """
        if _near(result, expected, tolerance):
            return True
        return isinstance(expected, list) and len(expected) == 1 and _near(result, expected[0], tolerance)

    def _fault(self, error: BaseException | None) -> str:
        """Returns why nothing follows about the solution, or "" where something does."""
        if isinstance(error, Unjudgeable):
            return str(error)
        if error is not None and isinstance(error.__cause__, Unjudgeable):
            return str(error.__cause__)  # the language puts a RuntimeError around it where a class is made
        if type(error) is ModuleNotFoundError and self._remote.apart and not self._remote.caused(error):
            return f"the tests need a module that the sandbox lacks: {error.name}"
        return ""

    def _ending(self, error: BaseException | None) -> tuple[str, str]:
        """Returns how a unit ended, in one word, and why."""
        if self._remote.dead:
            return self._remote.dead, ""
        if error is None:
            return "passed", ""
        if _is_skip(error):
            return "passed", "skipped"
        how = "raised" if self._remote.caused(error) else "failed"
        try:
            why = f"{type(error).__name__}: {error}"
        except Exception:
            why = type(error).__name__
        return how, why[:_LONGEST]

    def _with_fixtures(self, test: Any, named: dict[str, Any]) -> None:
        ended: list[Any] = []
        values = dict(named)
        try:
            for parameter in _parameters_of(test).values():
                if parameter.name not in values and parameter.default is parameter.empty:
                    values[parameter.name] = self._fixture(parameter.name, ended, getattr(test, "__self__", None))
            outcome = test(**values)
            if isinstance(outcome, types.CoroutineType):
                import asyncio

                asyncio.run(outcome)
        finally:
            for generator in ended:
                next(generator, None)

    def _fixture(self, name: str, ended: list[Any], owner: Any) -> Any:
        made: Any = getattr(owner, name, self.space.get(name))
        if made is None and name in _FIXTURES:
            ended.append(_until_the_end(_FIXTURES[name]()))
            return next(ended[-1])
        if not getattr(made, "grpo_fixture", False):
            raise Unjudgeable(f"the tests ask for the fixture '{name}', which is not here")
        given = [self._fixture(each, ended, owner) for each in _parameters_of(made)]
        value = made(*given)
        if not isinstance(value, types.GeneratorType):
            return value
        ended.append(value)
        return next(value)


_FIXTURES: dict[str, Callable[[], Any]] = {"capsys": Captured, "caplog": Lines, "monkeypatch": Patch}


def _until_the_end(fixture: Any) -> Iterator[Any]:
    yield fixture
    fixture.end()


def _near(result: Any, expected: Any, tolerance: float) -> bool:
    """Returns whether two values are equal, tuples as lists, floats within a tolerance of what is expected or 1."""
    if isinstance(result, list | tuple) and type(expected) is list:
        pairs = zip(result, expected, strict=False)
        return len(result) == len(expected) and all(_near(one, two, tolerance) for one, two in pairs)
    if type(result) is dict and type(expected) is dict:
        if all(type(key) is int for key in result) and all(type(key) is str for key in expected):
            result = {str(key): value for key, value in result.items()}  # JSON has no numbers as keys
        same = result.keys() == expected.keys()
        return same and all(_near(result[key], expected[key], tolerance) for key in expected)
    if tolerance and float in (type(result), type(expected)) and {type(result), type(expected)} <= {int, float}:
        most = tolerance * max(1.0, abs(expected))
        return bool(result == expected or (most < _INFINITE and abs(result - expected) <= most))
    return bool(result == expected)


def _parameters(lists: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Returns the keyword arguments of each call that stacked `parametrize` marks ask for."""
    every: list[dict[str, Any]] = [{}]
    for names, rows in lists:
        split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        choices = [dict(zip(split, [row] if len(split) == 1 else row, strict=True)) for row in rows]
        every = [{**known, **choice} for known in every for choice in choices]
    return every


def _parameters_of(function: Any) -> Mapping[str, Any]:
    """Returns the parameters of a function by name."""
    import inspect  # few tests need it, and every program would be forked with it

    return inspect.signature(function).parameters


def _call_with_or_without(function: Any, argument: Any) -> None:
    function(*([argument] if _parameters_of(function) else []))


def _is_skip(error: BaseException | None) -> bool:
    unittest = sys.modules.get("unittest")
    return unittest is not None and isinstance(error, unittest.SkipTest)


def from_input(descriptor: int) -> None:
    """Does what the standard input says; see `main`."""
    main(descriptor, **given())


def main(
    descriptor: int,
    nonce: str,
    setup: str,
    source: str,
    *,
    code: list[str],
    names: list[str],
    entry_point: str,
    classes: list[str],
    imported: list[str],
    optional: list[str],
    first: int,
    seconds: float,
    stop: bool,
    consistent: bool,
) -> None:
    """Runs tests against the solution at the other end of a descriptor and reports on them.

    Args:
        descriptor: the socket to the solution's sandbox.
        nonce: begins every line of the report.
        setup: trusted definitions that the tests may use, and that the solution does not replace.
        source: the tests, as `assert_plan` prepares them.
        code: the same compiled, see `guest_program.compiled`.
        names: the globals of the solution that the tests use.
        entry_point: the function under test, or "".
        classes: those of the names that the tests use as no function is used.
        imported: those of the names that the tests import from the solution.
        optional: those that a solution need not define, without which the tests mean nothing.
        first: the first unit to run.
        seconds: wall time of one unit, and of loading.
        stop: end at the first unit that fails.
        consistent: repeat the first answer to each question; see `guest.twins`.
    """
    output = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr = Nowhere()

    def report(line: list[Any]) -> None:
        data = f"{nonce} {json.dumps(line)}\n".encode("ascii")
        while data:
            data = data[os.write(output, data) :]

    space: dict[str, Any] = {"__name__": TESTS, "__builtins__": __builtins__}
    plain: dict[str, type] = {}
    channel = Channel(descriptor, trusted=True)
    channel.deadline = time.monotonic() + seconds
    remote = Remote(channel, plain, entry_point, frozenset(classes), consistent=consistent)
    try:
        _run_setup(setup, space, names, plain)
        found = remote.loaded(names)
    except (Gone, Late, Garbled):
        report(["load", remote.dead, ""])
        time.sleep(_LAST_WORD if remote.dead == "gone" else 0)
        return
    except _SetupFault as error:
        report(["unjudged", str(error)[:_LONGEST]])
        return
    if isinstance(found, str):
        report(["load", "raised", found[:_LONGEST]])
        return
    unknown = next((name for name in optional if name not in found), "")
    if unknown:
        report(["unjudged", f"the tests use '{unknown}', which neither they nor the task define"])
        return
    space.update(found)
    module = remote.module(found, space, imported)
    for name in SOLUTION_MODULES:
        sys.modules[name] = module
    units = Units(remote, report, first, seconds, stop)
    units.space, space[UNITS] = space, units
    channel.deadline = time.monotonic() + seconds
    report(_run_tests(source, code, space, remote))
    if remote.dead == "gone":
        time.sleep(_LAST_WORD)  # the other sandbox is stopped when this one ends, and how it ended by itself matters


class Nowhere(io.TextIOBase):
    """Takes what the tests print."""

    def write(self, text: str) -> int:
        return len(text)


class _SetupFault(Exception):
    """The definitions that come with the tests do not run."""


def _run_setup(setup: str, space: dict[str, Any], names: list[str], plain: dict[str, type]) -> None:
    """Runs the trusted definitions; classes among them cross by value, and what is under test is taken out."""
    if not setup:
        return
    try:
        code = compile(setup, "<setup>", "exec", dont_inherit=True)
        space.update({name: value for name, value in customary(code).items() if name not in names})
        exec(code, space)
    except Exception as error:
        raise _SetupFault(f"the definitions before the tests raise {type(error).__name__}: {error}") from error
    for name in names:
        space.pop(name, None)
    plain.update({name: value for name, value in space.items() if isinstance(value, type)})


def _code(source: str, magic: str, code: str) -> types.CodeType:
    """Returns the code of the tests: what came compiled, if this is an interpreter that can read it."""
    if magic and bytes.fromhex(magic) == MAGIC_NUMBER:
        found: types.CodeType = marshal.loads(bytes.fromhex(code))
        return found
    return compile(source, "<tests>", "exec", dont_inherit=True)


def _run_tests(source: str, compiled: list[str], space: dict[str, Any], remote: Remote) -> list[Any]:
    """Runs the prepared tests; returns the last line of the report."""
    try:
        code = _code(source, *compiled)
        mentioned = mentions(code)
        if "pytest" in mentioned:
            offer_pytest()
            offer_warns()
        offer_library(mentioned)
        exec(code, space)
    except Stop:
        return ["stopped", remote.dead]
    except Unjudgeable as error:
        return ["unjudged", str(error)[:_LONGEST]]
    except RuntimeError as error:
        if isinstance(error.__cause__, Unjudgeable):
            return ["unjudged", str(error.__cause__)[:_LONGEST]]
        return ["broken", remote.dead or f"RuntimeError: {error}"[:_LONGEST]]
    except ModuleNotFoundError as error:
        if not remote.caused(error):
            return ["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"]
        return ["broken", str(error)[:_LONGEST]]
    except BaseException as error:
        why = remote.dead or f"{type(error).__name__}: {error}"
        return ["broken", why[:_LONGEST]]
    return ["done"]
