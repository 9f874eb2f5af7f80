"""Runs tests in one process with the solution, by real pytest where they are written for it.

Semantics are therefore Python's own. The expected values are not in this process: a comparison with one asks the keeper
in another sandbox (`keeping`). The judge keeps its state in the locals of running functions, which only frames reveal,
and `guard` refuses frames; what the tests call of it stands in their code and in no namespace. The judge's modules are
removed before the solution loads, so that it cannot change them.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import json.encoder
import operator
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any

from grpo.rewards.code.guest.channel import orders, silence
from grpo.rewards.code.guest.customs import customary
from grpo.rewards.code.guest.guard import install, looks_around
from grpo.rewards.code.guest.loading import MODULE, asked_for, line_of, new_module, run_source
from grpo.rewards.code.guest.plain import NotPlain, decode, encode
from grpo.rewards.code.guest.units import Stop, asking, asserting, is_skip, same

_FILE = f"<{MODULE}>"
_HEAD = 4
_HOLDING = (list, dict, set, collections.deque, collections.Counter, collections.defaultdict)
_COUNTING = (int, float, str, bool, type(None), *_HOLDING)
_RUNNER = ("unittest.case", "unittest.mock", "pytest")
_AGAINST = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def main(descriptor: int) -> None:
    """Loads a solution, runs the tests with it and tells the keeper, at the descriptor, how each unit ended."""
    given = orders()
    silence()
    line = _line(descriptor, given.token)
    next(line)
    say = line.send
    module = new_module()
    refused: list[str] = []
    switch = install((os.__file__.rpartition("/")[0], "/usr/lib/sandbox"), refused.append)
    try:
        run_source(module, given.setup, "<setup>")
        for name in (*given.modules, *(["pytest"] if given.pytest else [])):
            __import__(name)  # before the solution can change it
    except ModuleNotFoundError as error:
        say(["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"])
        return
    except Exception as error:
        say(["unjudged", f"the definitions before the tests raise {line_of(error)}"])
        return
    before = dict(vars(module))
    runner = [*_RUNNER, *(name for name in sys.modules if name.startswith("_pytest"))]
    watched = ["builtins", *given.modules, *runner]
    marks = _marks(watched)
    for name in [name for name in sys.modules if name.partition(".")[0] == "grpo"]:
        del sys.modules[name]

    def looked() -> str:
        """Returns why the solution is wrong whatever it answers, or ""."""
        return f"it uses {refused[0]}, which could reveal the tests" if refused else ""

    refused.extend(filter(None, [looks_around(given.program)]))
    why = looked()
    if not why:
        signal.setitimer(signal.ITIMER_PROF, given.seconds)
        switch(True)
        try:
            before |= run_source(module, given.program)
        except BaseException as error:  # the program may also call sys.exit()
            why = line_of(error)
        changed = _difference(marks, _marks(watched))
        why = why or looked() or (f"it changes {changed}" if changed else "")
    if why:
        say(["failed", "raised", why])
        return
    space = {name: value for name, value in before.items() if not name.startswith("__")}
    space |= {"__name__": "test_solution", "__builtins__": sys.modules["builtins"], "__near__": same}
    for name in given.names:
        space.pop(name, None)
        with contextlib.suppress(NameError):
            space[name] = asked_for(module, name, before)
    now = vars(module)
    kinds = [name for name, value in before.items() if isinstance(value, type) and isinstance(now.get(name), type)]
    space.update({name: now[name] for name in kinds if name in space})  # a program may define what the prompt does anew
    say(["loaded"])
    ask, has_changed, forget = asking(given.replay)
    true, enter, begin_assertions, fault_of = asserting(given.sure, given.reaching)
    faults: list[str] = []
    patching = any(word in given.source for word in ("patch", "setattr", "builtins"))
    watched = runner if patching else ["builtins", *runner]
    running = -1

    def begin(unit: int) -> bool:
        nonlocal running, marks
        if not given.first <= unit <= given.last:
            return False
        if running < 0:
            marks = _marks(watched)  # pytest itself has begun
        running = unit
        has_changed()
        forget()
        faults.clear()
        refused.clear()
        begin_assertions()
        signal.setitimer(signal.ITIMER_PROF, given.seconds)
        say(["begin", unit])
        return True

    def ended(unit: int, error: BaseException | None, how: str = "", why: str = "") -> None:
        if isinstance(error, Stop):
            raise error
        if refused:
            how, why = "failed", looked()
        elif _is_skip(error):
            how = "passed"
        elif error is not None and not how:
            how, why = "failed" if isinstance(error, AssertionError) else "raised", line_of(error)
        elif not how:
            fault = faults[0] if faults else _difference(marks, _marks(watched)) or fault_of(unit)
            how, why = ("failed", fault) if fault else ("passed", "")
        if not say(["end", how, why, has_changed()]):
            raise Stop

    judge = _questions(module, say, faults)
    judge |= {"__begin__": begin, "__ended__": ended, "__ask__": ask, "__forget__": forget}
    judge |= {"__true__": true, "__enter__": enter}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # texts that stand for functions are called
            code = compile(given.source, "<tests>", "exec", dont_inherit=True)
        space = customary(code) | space
        code = _with_judge(code, judge)
        trouble = ""
        if given.pytest:
            tests = types.ModuleType("test_solution")
            vars(tests).update(space)
            trouble = _run_pytest(code, tests, given.items, range(given.first, given.last + 1), begin, ended)
        else:
            exec(code, space)
        say(["broken", trouble] if trouble else ["done"])
    except Stop:
        say(["stopped", ""])
    except ModuleNotFoundError as error:
        own = _is_of_solution(error)
        say(["broken", line_of(error)] if own else ["unjudged", f"the sandbox lacks the module {error.name}"])
    except BaseException as error:
        say(["broken", line_of(error)])


def _with_judge(code: types.CodeType, judge: dict[str, Any]) -> types.CodeType:
    """Returns code in which functions of the judge stand where the code has the texts that name them."""
    constants = [
        _with_judge(each, judge)
        if isinstance(each, types.CodeType)
        else judge.get(each, each)
        if type(each) is str
        else each
        for each in code.co_consts
    ]
    return code.replace(co_consts=tuple(constants))


def _questions(module: types.ModuleType, say: Callable[[list[Any]], Any], faults: list[str]) -> dict[str, Any]:
    """Returns what the tests call to compare something with what the solution made, by its name.

    Args:
        module: the solution.
        say: asks the keeper.
        faults: gets what is wrong with the objects of the solution.
    """

    def doubt(fault: str, question: Callable[[], Any], *values: Any) -> None:
        """Notes a fault if objects say yes to an extra question, of which they keep no trace; an error is no yes."""
        with _without_trace(module, *values), contextlib.suppress(Exception):
            if question():
                faults.append(fault)

    def known(value: Any, place: int, tolerance: float | None = None) -> bool:
        try:
            wire = encode(value)
        except (NotPlain, RecursionError):
            return equal(value, place)
        return bool(say(["known", place, wire, tolerance]))

    def equal(value: Any, place: int) -> bool:
        with _without_trace(module, value):
            other, error = _asked(value, place, None, say)
        if error is not None:
            raise error
        return bool(value == other)

    def alike(two: Any, one: Any, *others: Callable[[Any, Any], Any]) -> Any:
        result = one == two
        return suspected(one, two, *others) if result is True else result

    def differ(two: Any, one: Any) -> Any:
        result = one != two
        return not suspected(one, two) if result is False else result

    def suspected(one: Any, two: Any, *others: Callable[[Any, Any], Any]) -> bool:
        """Asks an object that says that it equals something whether it equals other things too."""
        if others:
            everything = "an object that equals whatever is made like it"
            doubt(everything, lambda: all(other(one, two) for other in others), one, two)
        own, other = (one, two) if _has_own_eq(one) else (two, one)
        if not _has_own_eq(own):
            return True
        try:
            encode(other)
        except (NotPlain, RecursionError):
            both = "an object that equals a value and does not"
            doubt(both, lambda: (_has_own_ne(own) and own != other) or not own == other, own)  # noqa: SIM201
            everything = "an object that equals whatever it is compared with"
            doubt(everything, lambda: own == object() and own == "\N{SNOWMAN}", own)
            return True
        with _without_trace(module, own):
            _asked(own, -1, other, say)
        return True

    def order(names: tuple[str, ...], *values: Any) -> bool:
        for name, one, two in zip(names, values, values[1:], strict=False):
            ask, against = getattr(operator, name), getattr(operator, _AGAINST[name])
            if not ask(one, two):
                return False
            if _is_own(one) or _is_own(two):
                questions: list[Callable[[], Any]] = [
                    lambda: against(one, two),  # noqa: B023
                    lambda: not ask(one, two),  # noqa: B023
                    lambda: name in ("lt", "gt") and ask(two, one),  # noqa: B023
                ]
                for question in questions:
                    doubt("an object that gives an order and its opposite", question, one, two)
        return True

    def close(value: Any, near: Callable[[Any], Any], elsewhere: Callable[[Any], Any]) -> Any:
        result = near(value)
        if result and _is_own(value):
            doubt("a number that is near to every number", lambda: elsewhere(value), value)
        return result

    def contains(item: Any, holder: Any) -> Any:
        result = item in holder
        if result and _has_own_eq(item) and type(holder) in (list, tuple):
            suspected(item, next(each for each in holder if item is each or item == each))
        if result and _is_own(holder):
            question = "an object that contains everything"
            doubt(question, lambda: object() in holder and "\N{SNOWMAN}" in holder, holder)
        return result

    def twice(function: Any, value: Any, *named: str) -> Any:
        result = function(value, *named)
        if _is_own(value) and type(result) in _COUNTING and result == result:
            name = named[0] if named else function.__name__
            doubt(f"an object with two answers to {name}", lambda: _differs(result, function(value, *named)), value)
        return result

    def get(value: Any, name: str) -> Any:
        return twice(getattr, value, name)

    given = {"known": known, "alike": alike, "differ": differ, "order": order, "close": close, "contains": contains}
    return {f"__{name}__": function for name, function in {**given, "twice": twice, "get": get}.items()}


def _is_own(value: Any) -> bool:
    """Returns whether a value is an object of the solution's."""
    return type(value).__module__ == MODULE


def _differs(one: Any, two: Any) -> bool:
    return type(one) is not type(two) or one != two


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


def _has_own_eq(value: Any) -> bool:
    """Returns whether the class of a value defines `__eq__` in Python."""
    return isinstance(type(value).__eq__, types.FunctionType)


def _has_own_ne(value: Any) -> bool:
    """Returns whether `!=` follows from `==`, or is Python code, and not that of a built-in type it derives from."""
    function: Any = type(value).__ne__
    return function is object.__ne__ or isinstance(function, types.FunctionType)


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


def _run_pytest(code: Any, tests: Any, items: dict[str, int], wanted: range, begin: Any, ended: Any) -> str:
    """Runs a test module by pytest; returns why it could not be collected, or ""."""
    import pytest

    trouble: list[str] = []
    outcome: dict[str, tuple[str, str]] = {}

    class Tests(pytest.Module):
        def _getobj(self) -> Any:
            exec(code, vars(tests))
            return tests

    plugin: Any = types.ModuleType("judge")

    def hook(function: Any) -> None:
        setattr(plugin, function.__name__, function)

    @hook
    def pytest_pycollect_makemodule(module_path: Any, parent: Any) -> Any:
        return Tests.from_parent(parent, path=module_path)

    @hook
    def pytest_collectreport(report: Any) -> None:
        if report.failed:
            trouble.append(str(report.longrepr).strip().splitlines()[-1][:300])

    @hook
    def pytest_internalerror(excrepr: Any) -> None:
        trouble.append(str(excrepr).strip().splitlines()[-1][:300])

    @hook
    def pytest_pyfunc_call(pyfuncitem: Any) -> Any:
        import inspect

        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        import asyncio

        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        asyncio.run(pyfuncitem.obj(**arguments))
        return True

    @hook
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

    @hook
    def pytest_collection_modifyitems(items: list[Any]) -> None:
        items[:] = [item for item in items if unit_of(item) in wanted]

    @hook
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

    os.close(os.open("test_solution.py", os.O_CREAT))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    off = [word for name in ("cacheprovider", "faulthandler", "doctest", "junitxml") for word in ("-p", f"no:{name}")]
    options = ["-q", "-s", "--assert=plain", "-c", os.devnull, "--rootdir", ".", "--import-mode=importlib", *off]
    pytest.main([*options, "test_solution.py"], plugins=[plugin])
    return trouble[0] if trouble else ""
