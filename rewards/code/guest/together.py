"""Runs tests in one process with the solution, by real pytest where they are written for it.

Semantics are therefore Python's own. The expected values are not in this process: a comparison with one asks the keeper
in another sandbox (`keeping`). The judge keeps its state in the locals of running functions, which only frames reveal,
and `guard` refuses frames. The judge's modules are removed before the solution loads, so that it cannot change them.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import json.encoder
import os
import signal
import sys
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

from grpo.rewards.code.guest.channel import given
from grpo.rewards.code.guest.customs import customary
from grpo.rewards.code.guest.guard import install, looks_around
from grpo.rewards.code.guest.loading import MODULE, asked_for, line_of, new_module, run_sources, silence
from grpo.rewards.code.guest.plain import NotPlain, decode, encode
from grpo.rewards.code.guest.units import Stop, asking, asserting, is_skip, same

_FILE = f"<{MODULE}>"
_HEAD = 4
_HOLDING = (list, dict, set, collections.deque, collections.Counter, collections.defaultdict)
_COUNTING = (int, float, str, bool, type(None), *_HOLDING)
_RUNNER = ("unittest.case", "unittest.mock", "pytest")
_WATCHED = ("builtins", *_RUNNER)


def from_input(descriptor: int) -> None:
    """Does what the standard input says; see `main`."""
    main(descriptor, **given())


def main(
    descriptor: int,
    token: str,
    setup: str,
    program: str,
    source: str,
    *,
    names: list[str],
    pytest: bool,
    items: dict[str, int],
    modules: list[str],
    sure: list[list[int]],
    reaching: list[int],
    first: int,
    last: int,
    seconds: float,
    replay: int,
) -> None:
    """Loads a solution, runs the tests with it and tells the keeper how each unit ended.

    Args:
        descriptor: the socket to the keeper.
        token: what each frame begins with.
        setup: trusted definitions that the tests and the solution may use.
        program: the solution.
        source: the tests, as `instrument` prepares them.
        names: the globals of the solution that the tests use.
        pytest: the tests are written for pytest or unittest, and pytest runs them.
        items: the units by the names of test functions, `Class.method` in classes.
        modules: what the tests import, which the solution may not change while it is loaded.
        sure: see `asserting`.
        reaching: likewise.
        first: the first unit to run.
        last: the last one.
        seconds: processor time of loading and of one unit, after which the process is ended.
        replay: see `asking`.
    """
    silence()
    line = _line(descriptor, token)
    next(line)
    say = line.send
    ask, anew, forget = asking(replay)
    true, enter, begin_assertions, fault_of = asserting(sure, reaching)
    module = new_module()
    space: dict[str, Any] = {"__name__": "test_solution", "__builtins__": sys.modules["builtins"]}
    refused: list[str] = []
    library = os.__file__.rpartition("/")[0]
    switch = install((library, "/usr/lib/sandbox"), refused.append)
    try:
        run_sources(module, [setup] if setup else [], "<setup>")
        for name in modules:
            __import__(name)
        if pytest:
            __import__("pytest")  # before the solution can change it
    except ModuleNotFoundError as error:
        say(["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"])
        return
    except Exception as error:
        say(["unjudged", f"the definitions before the tests raise {line_of(error)}"])
        return
    before = dict(vars(module))
    space.update({name: value for name, value in before.items() if not name.startswith("__")})
    watched = [*_WATCHED, *modules]
    marks = _marks(watched)
    runner = [*_RUNNER, *(name for name in sys.modules if name.startswith("_pytest"))]
    runner_marks = _marks(runner)
    for name in [name for name in sys.modules if name.partition(".")[0] == "grpo"]:
        del sys.modules[name]
    fault = looks_around(program)
    if fault:
        say(["failed", "raised", f"it uses {fault}, which could reveal the tests"])
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    switch(True)
    try:
        before |= run_sources(module, [program])
    except BaseException as error:  # the program may also call sys.exit()
        switch(False)
        say(["failed", "raised", line_of(error)])
        return
    if refused:
        say(["failed", "raised", f"it uses {refused[0]}, which could reveal the tests"])
        return
    changed = _difference(marks, _marks(watched)) or _difference(runner_marks, _marks(runner))
    if changed:
        say(["failed", "raised", f"it changes {changed}"])
        return
    for name in names:
        try:
            space[name] = asked_for(module, name, before)
        except KeyError:
            space.pop(name, None)
    now = vars(module)
    kinds = [name for name, value in before.items() if isinstance(value, type) and isinstance(now.get(name), type)]
    space.update({name: now[name] for name in kinds if name in space})  # a program may define what the prompt does anew
    say(["loaded"])
    faults: list[str] = []
    running = [-1]

    def begin(unit: int) -> bool:
        if not first <= unit <= last:
            return False
        if running[0] < 0:
            runner_marks.update(_marks(runner))  # pytest itself has begun
        anew()
        faults.clear()
        refused.clear()
        begin_assertions()
        running[0] = unit
        signal.setitimer(signal.ITIMER_PROF, seconds)
        say(["begin", unit])
        return True

    def ended(unit: int, error: BaseException | None, how: str = "", why: str = "") -> None:
        if isinstance(error, Stop):
            raise error
        if refused:
            how, why = "failed", f"it uses {refused[0]}, which could reveal the tests"
        elif _is_skip(error):
            how = "passed"
        elif error is not None and not how:
            how, why = "failed" if isinstance(error, AssertionError) else "raised", line_of(error)
        elif not how:
            how = "passed"
            fault = faults[0] if faults else _difference(runner_marks, _marks(runner)) or fault_of(unit)
            how, why = ("failed", fault) if fault else (how, why)
        if not say(["end", how, why, anew()]):
            raise Stop

    def known(value: Any, place: int, tolerance: float | None = None) -> bool:
        try:
            wire = encode(value)
        except (NotPlain, RecursionError):
            return equal(value, place, None)
        return bool(say(["known", place, wire, tolerance]))

    def equal(value: Any, place: int, expected: Any) -> bool:
        with _without_trace(module, value):
            other, error = _asked(value, place, expected, say)
        if error is not None:
            raise error
        return bool(value == other)

    def alike(two: Any, one: Any) -> Any:
        result = one == two
        return suspected(one, two) if result is True else result

    def differ(two: Any, one: Any) -> Any:
        result = one != two
        return not suspected(one, two) if result is False else result

    def suspected(one: Any, two: Any) -> bool:
        """Asks an object that says that it equals something whether it equals other things too."""
        own, other = (one, two) if _has_own_eq(one) else (two, one)
        if not _has_own_eq(own):
            return True
        try:
            encode(other)
        except (NotPlain, RecursionError):
            with _without_trace(module, own):
                if _agrees(lambda: own == object()) and _agrees(lambda: own == "\N{SNOWMAN}"):
                    faults.append("an object that equals whatever it is compared with")
                elif (_has_own_ne(own) and _agrees(lambda: own != other)) or not _agrees(lambda: own == other):
                    faults.append("an object that equals a value and does not")
            return True
        with _without_trace(module, own):
            _asked(own, -1, other, say)
        return True

    def order(names: tuple[str, ...], *values: Any) -> bool:
        for name, one, two in zip(names, values, values[1:], strict=False):
            if not _ORDERS[name](one, two):
                return False
            if MODULE in (type(one).__module__, type(two).__module__):
                with _without_trace(module, one, two):
                    against = _agrees(lambda: _ORDERS[_AGAINST[name]](one, two))  # noqa: B023
                    still = _agrees(lambda: _ORDERS[name](one, two))  # noqa: B023
                if against or not still:
                    faults.append("an object that gives an order and its opposite")
        return True

    def get(value: Any, name: str) -> Any:
        result = getattr(value, name)
        if type(value).__module__ == MODULE:
            with _without_trace(module, value):
                again = getattr(value, name)
            if _is_plain(result) and again != result:
                faults.append(f"an attribute with two answers: {name}")
        return result

    def contains(item: Any, holder: Any) -> Any:
        result = item in holder
        if result and _has_own_eq(item) and type(holder) in (list, tuple):
            suspected(item, next(each for each in holder if item is each or item == each))
        if result and type(holder).__module__ == MODULE:
            with _without_trace(module, holder):
                everything = _agrees(lambda: object() in holder) and _agrees(lambda: "\N{SNOWMAN}" in holder)
            if everything:
                faults.append("an object that contains everything")
        return result

    def twice(function: Any, value: Any, **named: Any) -> Any:
        result = function(value, **named)
        if type(value).__module__ == MODULE:
            with _without_trace(module, value):
                again = function(value, **named)
            of_data = type(result).__module__ == "builtins"  # two objects alike may differ in their texts
            if type(again) is not type(result) or (of_data and repr(again) != repr(result)):
                faults.append(f"an object with two answers to {function.__name__}")
        return result

    space.update(__begin__=begin, __ended__=ended, __ask__=ask, __true__=true, __near__=same)
    space.update(
        __known__=known, __alike__=alike, __differ__=differ, __order__=order, __contains__=contains, __twice__=twice
    )
    space.update(__get__=get, __enter__=enter, __forget__=forget)
    try:
        code = compile(source, "<tests>", "exec", dont_inherit=True)
        space.update({name: value for name, value in customary(code).items() if name not in space})
        if pytest:
            tests = types.ModuleType("test_solution")
            vars(tests).update(space)
            trouble = _run_pytest(code, tests, items, (first, last), begin, ended)
            if trouble:
                say(["broken", trouble])
        else:
            exec(code, space)
    except Stop:
        say(["stopped", ""])
    except ModuleNotFoundError as error:
        own = _is_of_solution(error)
        say(["broken", line_of(error)] if own else ["unjudged", f"the sandbox lacks the module {error.name}"])
    except BaseException as error:
        say(["broken", line_of(error)])
    say(["done"])


def _line(descriptor: int, token: str) -> Generator[Any, list[Any], None]:
    """Sends each message that comes and yields the answer, where one is due."""
    write, read, loads = os.write, os.read, json.loads
    os.set_blocking(descriptor, True)
    make: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
    text = json.encoder.encode_basestring_ascii
    encoder = make(None, _refuse, text, None, ":", ",", False, False, True)
    replied = ("known", "object", "answers", "end")

    def received(count: int) -> bytes:
        pieces = b""
        while len(pieces) < count:
            piece = read(descriptor, count - len(pieces))
            if not piece:
                os._exit(0)
            pieces += piece
        return pieces

    reply = None
    while True:
        message = yield reply
        body = "".join(encoder([token, *message], 0)).encode("ascii")
        data = len(body).to_bytes(_HEAD, "big") + body
        while data:
            data = data[write(descriptor, data) :]
        reply = loads(received(int.from_bytes(received(_HEAD), "big"))) if message[0] in replied else None


def _refuse(value: Any) -> Any:
    raise TypeError(type(value).__name__)


def _asked(value: Any, place: int, expected: Any, say: Callable[[list[Any]], Any]) -> tuple[Any, Exception | None]:
    """Asks an object which of several values it equals; returns the expected value and what that comparison raised."""
    values = [decode(wire) for wire in say(["object", place, encode(expected)])]
    answers, raised = [], {}
    for at, other in enumerate(values):
        try:
            first, second = bool(value == other), bool(value == other)
            unequal = bool(value != other) if _has_own_ne(value) else not first
            answers.append("both" if first is not second or first is unequal else "yes" if first else "no")
        except Exception as error:
            answers.append("raised")
            raised[at] = error
    right = say(["answers", answers])
    return values[right], raised.get(right)


@contextlib.contextmanager
def _without_trace(module: types.ModuleType, *values: Any) -> Iterator[None]:
    """Restores the solution's plain data after extra questions of the judge, as a test may count comparisons."""
    holders: list[Any] = [module]
    for value in values:
        if type(value).__module__ == MODULE:
            holders += [kind for kind in type(value).__mro__ if kind.__module__ == MODULE]
            holders += [value] if type(getattr(value, "__dict__", None)) is dict else []
    before = [
        (holder, name, held, copy.copy(held) if type(held) in _HOLDING else held)
        for holder in holders
        for name, held in list(vars(holder).items())
        if type(held) in _COUNTING and not name.startswith("__")
    ]
    yield
    for holder, name, held, content in before:
        if type(held) in _HOLDING and held != content:
            held.clear()
            (held.extend if hasattr(held, "extend") else held.update)(content)
        elif vars(holder).get(name, held) is not held:
            setattr(holder, name, held)


_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": lambda one, two: one < two,
    "LtE": lambda one, two: one <= two,
    "Gt": lambda one, two: one > two,
    "GtE": lambda one, two: one >= two,
}
_AGAINST = {"Lt": "GtE", "LtE": "Gt", "Gt": "LtE", "GtE": "Lt"}


def _has_own_eq(value: Any) -> bool:
    """Returns whether the class of a value defines `__eq__` in Python."""
    return isinstance(type(value).__eq__, types.FunctionType)


def _has_own_ne(value: Any) -> bool:
    """Returns whether `!=` follows from `==`, or is Python code, and not that of a built-in type it derives from."""
    function: Any = type(value).__ne__
    return function is object.__ne__ or isinstance(function, types.FunctionType)


def _agrees(question: Callable[[], Any]) -> bool:
    """Returns whether an object says yes to a question; an exception is no answer."""
    try:
        return bool(question())
    except Exception:
        return False


def _is_plain(value: Any) -> bool:
    return type(value) in _COUNTING and value == value


def _marks(names: list[str]) -> dict[tuple[str, str], int]:
    """Returns the ids of the functions and classes in some modules and in the classes that they define."""
    marks: dict[tuple[str, str], int] = {}
    for name in names:
        module = sys.modules.get(name)
        if module is None:
            continue
        for key, value in list(vars(module).items()):
            if callable(value) and "<locals>" not in getattr(value, "__qualname__", ""):  # pytest sets these anew
                marks[name, key] = id(value)
                if isinstance(value, type) and value.__module__ == name:
                    marks |= {(f"{name}.{key}", part): id(held) for part, held in vars(value).items() if callable(held)}
    return marks


def _difference(before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> str:
    """Returns the name of a function or class that was replaced, or ""."""
    if before == after:
        return ""
    keys = {key for key in before if before[key] != after.get(key)}
    return ".".join(min(keys)) if keys else ""


def _is_of_solution(error: BaseException) -> bool:
    """Returns whether code of the solution stands in the trace of an exception."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            return True
        trace = trace.tb_next
    return False


def _is_skip(error: BaseException | None) -> bool:
    """Returns whether the tests skip the rest; a skip raised by the solution does not count."""
    return is_skip(error) and error is not None and not _is_of_solution(error)


def _run_pytest(code: Any, tests: Any, items: dict[str, int], wanted: tuple[int, int], begin: Any, ended: Any) -> str:
    """Runs a test module by pytest; returns why it could not be collected, or ""."""
    import pytest

    trouble: list[str] = []
    outcome: dict[str, tuple[str, str]] = {}

    class Tests(pytest.Module):
        def _getobj(self) -> Any:
            exec(code, vars(tests))
            return tests

    plugin: Any = types.ModuleType("judge")

    def pytest_pycollect_makemodule(module_path: Any, parent: Any) -> Any:
        return Tests.from_parent(parent, path=module_path)

    def pytest_collectreport(report: Any) -> None:
        if report.failed:
            trouble.append(str(report.longrepr).strip().splitlines()[-1][:300])

    def pytest_internalerror(excrepr: Any) -> None:
        trouble.append(str(excrepr).strip().splitlines()[-1][:300])

    def pytest_pyfunc_call(pyfuncitem: Any) -> Any:
        import inspect

        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        import asyncio

        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        asyncio.run(pyfuncitem.obj(**arguments))
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item: Any, call: Any) -> Any:
        report = yield
        skipped = report.skipped or hasattr(report, "wasxfail")
        if skipped and call.excinfo is not None:
            by_solution = _is_of_solution(call.excinfo.value)
            outcome["fault"] = ("raised", "the solution skips the test") if by_solution else ("passed", "skipped")
        elif report.failed and "fault" not in outcome:
            error = call.excinfo.value if call.excinfo is not None else None
            how = "failed" if isinstance(error, AssertionError) or error is None else "raised"
            outcome["fault"] = (how, line_of(error) if error is not None else str(report.longrepr)[:300])
        return report

    def unit_of(item: Any) -> int:
        name = getattr(item, "originalname", None) or item.name
        owner = f"{item.cls.__name__}.{name}" if getattr(item, "cls", None) else name
        known = (items.get(each) for each in (getattr(item.obj, "__qualname__", ""), owner, name))
        return next((unit for unit in known if unit is not None), 0)

    def pytest_collection_modifyitems(items: list[Any]) -> None:
        items[:] = [item for item in items if wanted[0] <= unit_of(item) <= wanted[1]]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item: Any, nextitem: Any) -> Any:
        unit = unit_of(item)
        outcome.clear()
        begin(unit)
        result = yield
        try:
            ended(unit, None, *outcome.get("fault", ()))
        except Stop:
            item.session.shouldstop = "enough"
        return result

    for hook in (
        pytest_pycollect_makemodule,
        pytest_collectreport,
        pytest_internalerror,
        pytest_collection_modifyitems,
        pytest_pyfunc_call,
        pytest_runtest_makereport,
        pytest_runtest_protocol,
    ):
        setattr(plugin, hook.__name__, hook)
    os.close(os.open("test_solution.py", os.O_CREAT))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    off = [word for name in ("cacheprovider", "faulthandler", "doctest", "junitxml") for word in ("-p", f"no:{name}")]
    options = ["-q", "-s", "--assert=plain", "-c", os.devnull, "--rootdir", ".", "--import-mode=importlib", *off]
    pytest.main([*options, "test_solution.py"], plugins=[plugin])
    return trouble[0] if trouble else ""
