"""Runs tests and solution in one process, with real pytest if the tests are written for it.

The judge keeps its state in the locals of running functions, which only frames reveal, and `guard` refuses frames; what
the tests call of it stands in their code and in no namespace. The judge's modules are removed before the solution
loads, so that it cannot change them. This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from typing import Any

from grpo.rewards.code.guest.channel import line, orders
from grpo.rewards.code.guest.customs import (
    FILE,
    asked_for,
    customary,
    line_of,
    new_module,
    path_of,
    run_source,
    show_source,
)
from grpo.rewards.code.guest.guard import install, looks_around
from grpo.rewards.code.guest.laws import watched_equality
from grpo.rewards.code.guest.plain import decode
from grpo.rewards.code.guest.soft import softening
from grpo.rewards.code.guest.units import CHANGING, Stop, asserting, is_skip, remembering, same

Say = Callable[[list[Any]], Any]
_TEST_FILE = "test_solution.py"
_RUNNER = ("unittest.case", "unittest.mock", "pytest")
_HEAP = 1 << 9  # the flag of a class that can be changed
_SETTABLE = frozenset(("sys", "warnings", "logging", "threading"))  # whose hooks any program may set
_LINE, _SKIPS = 1, 2
_SKIPPING = re.compile(r"\b(?:skip|xfail|importorskip|skipTest|SkipTest)\b")
_COMPUTING = (
    *("bisect", "cmath", "copy", "fractions", "functools", "heapq", "itertools", "json", "math", "operator", "re"),
    *("statistics", "string"),
)

_WITH_DATA = frozenset(("sys", "calendar", *_COMPUTING))


def main(descriptor: int) -> None:
    """Loads a solution, runs the tests with it and tells the keeper, at the descriptor, how each unit ended."""
    given = orders()
    keeper = line(descriptor, given.token, ("end",))
    next(keeper)
    say = keeper.send
    module = new_module()
    refused: list[str] = []
    switch = install((os.__file__.rpartition("/")[0], "/usr/lib/sandbox"), refused.append)
    if not begun(given, say, module):
        return
    _draw_alike(given.draws)
    show_source(module, given.program)
    broken_law = watched_equality(given.names, given.denies, given.expected) if given.run >= 0 else str
    before = dict(vars(module))
    _hide_judge()
    runner = [name for name in sys.modules if name in _RUNNER or name.startswith("_pytest")]
    standard = {name for name in sys.modules if name.partition(".")[0] in sys.stdlib_module_names - _SETTABLE}
    libraries = sorted({*runner, *standard, "sys", *(name for name in given.modules if name not in _SETTABLE)})
    patching = any(word in given.source for word in ("patch", "setattr", "builtins"))
    changed_by_tests = set(re.findall(r"\b(\w+)\.\w+(?:, [\w.]+)* = ", given.source))
    kept = [name for name in given.modules if name.rpartition(".")[2] not in changed_by_tests]
    taken = vars(sys.modules["builtins"]) if patching else _taken(kept)

    def looked() -> str:
        """Returns why the solution is wrong whatever it answers, or ""."""
        return f"it uses {refused[0]}, which could reveal the tests" if refused else ""

    refused.extend(filter(None, [looks_around(given.program)]))
    why = looked()
    if not why:
        signal.setitimer(signal.ITIMER_PROF, given.seconds)
        switch(True)
        replaced = _watching(libraries)
        try:
            before |= run_source(module, given.program)
        except BaseException as error:  # the program may also call sys.exit()
            why = line_of(error)
        why = why or looked() or (f"it changes {replaced()}" if replaced() else "")
    if why:
        say(["failed", "raised", why])
        return
    tests = types.ModuleType(_TEST_FILE.removesuffix(".py"))
    space = vars(tests)
    space.update({name: value for name, value in before.items() if not name.startswith("__")})
    space.update({"__builtins__": taken})
    for name in given.names:
        space.pop(name, None)
        with contextlib.suppress(NameError):
            space[name] = asked_for(module, name, before)
    now = vars(module)
    kinds = [name for name, value in before.items() if isinstance(value, type) and isinstance(now.get(name), type)]
    space.update({name: now[name] for name in kinds if name in space})  # a program may define what the prompt does anew
    say(["loaded"])
    known: dict[str, Any] = {}

    def given_anew() -> str:
        """Returns a global name of the tests that got another meaning, but not from them; "" for none."""
        changed = [name for name in space if name in taken and name not in known]
        if given.pytest:  # then all of them have been there from the beginning
            changed += [name for name, value in known.items() if callable(value) or isinstance(value, types.ModuleType)]
            changed = [name for name in changed if space.get(name) is not known.get(name)]
        if patching or not changed:
            return ""
        import ast

        every = list(ast.walk(ast.parse(given.source)))
        own = {name for node in every if isinstance(node, ast.Global) for name in node.names}
        if not given.pytest:
            own |= {node.id for node in every if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            named = [node for node in every if isinstance(node, ast.alias | ast.FunctionDef | ast.ClassDef)]
            own |= {getattr(node, "asname", None) or node.name for node in named}
        return next((name for name in changed if name not in own), "")

    def begin() -> None:
        nonlocal replaced, known
        if not known:  # pytest itself has begun, and what the tests replace themselves is not watched
            held = {name: value for name, value in vars(tests).items() if isinstance(value, type)}
            classes = [kind for name, kind in held.items() if name not in changed_by_tests]
            others = [name for name in libraries if name.rpartition(".")[2] not in changed_by_tests]
            replaced = _watching(runner) if patching else _watching(others, classes)
            known = dict(space)
        refused.clear()
        signal.setitimer(signal.ITIMER_PROF, given.seconds)

    def failure() -> tuple[str, str]:
        why = looked() or broken_law()
        return ("failed", why) if why else ("", "")

    ask, asked = remembering(given.remembers)
    side = types.SimpleNamespace(
        begin=begin,
        failure=failure,
        is_raised=_is_of_solution,
        last_answer=lambda: "",
        other="",
        ask=ask,
        asked=asked,
    )
    calls = [call for call in given.asked if call[0] in given.names]
    for name, args, named in reversed(calls):  # a counter goes the other way
        with contextlib.suppress(Exception):
            ask(space[name], *map(decode, args), **{key: decode(value) for key, value in named.items()})
    side.forbidden_change = lambda: f"it changes {name}" if (name := replaced() or given_anew()) else ""
    run_tests(given, say, tests, side)


def _hide_judge() -> None:
    """Removes the judge's modules, and unused methods of classes: a solution could find these."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "grpo"]:
        for kind in [each for each in vars(sys.modules.pop(name)).values() if type(each) is type]:
            if kind.__module__.startswith("grpo.rewards.code"):
                for key in [key for key, each in vars(kind).items() if type(each) is types.FunctionType]:
                    delattr(kind, key)


def _draw_alike(draws: int) -> None:
    """Derives all random numbers from one seed, so that an object answers alike in each run."""
    source = random.Random(draws)
    random.seed(draws)
    plain: Any = random.Random.seed

    def seed(generator: Any, a: Any = None, version: int = 2) -> None:
        plain(generator, source.getrandbits(64) if a is None else a, version)

    vars(os)["urandom"] = vars(random)["_urandom"] = source.randbytes
    random.Random.seed = seed  # type: ignore[method-assign, assignment]


def begun(given: Any, say: Say, module: types.ModuleType) -> bool:
    """Loads what the tests and the solution use; returns whether that is there."""
    try:
        run_source(module, given.setup, "<setup>")
        for name in (*given.modules, *(["pytest"] if given.pytest else [])):
            __import__(name)  # before the solution can change it
    except ModuleNotFoundError as error:
        say(["unjudged", f"the tests need a module that the sandbox lacks: {error.name}"])
    except Exception as error:
        say(["unjudged", f"the definitions before the tests raise {line_of(error)}"])
    else:
        return True
    return False


def run_tests(given: Any, say: Say, tests: types.ModuleType, side: Any) -> None:
    """Runs tests, by pytest where they are written for it, and tells the keeper how each unit ended.

    `given`: the orders. `say`: tells the keeper something and returns its reply. `tests`: the module in which the tests
    run. `side`: what depends on where the solution is: `begin` of a unit; `ask`, which calls a function, and what was
    `asked`; `failure`, how and why a unit has failed whatever its assertions found; `forbidden_change`; `is_raised`,
    whether the solution raised an exception; `last_answer`, the last call in
    words; `other`, an answer that is no plain data.
    """
    true, enter, begin_assertions, fault_of, failed = asserting(given.sure, given.reaching)
    running: list[int] = []  # units, one within the other
    skips = re.search(r"skip|xfail|expectedFailure", given.source, re.IGNORECASE) is not None

    def skips_by(error: BaseException) -> bool:
        """Returns whether the tests skip themselves, or their runner does: nothing of another name raises that."""
        places = [place for frame, place in walk_tb(error.__traceback__) if frame.f_code.co_filename == "<tests>"]
        return not places or places[-1] == _SKIPS

    def begin(unit: int) -> bool:
        if not given.first <= unit <= given.last:
            return False
        side.begin()
        if not running:
            held()
            begin_assertions()
        running.append(unit)
        say(["begin", unit])
        return True

    def why_of(error: BaseException) -> str:
        unequal = type(error) is AssertionError and not error.args
        answer = side.last_answer()
        quoted = f": assert {failed[-1]}" if failed else ""
        beside = f" ({answer})" if quoted else f": {answer}"
        other = f"another value than expected{quoted}{beside if answer else ''}"
        return str(side.other) or (other if unequal else line_of(error))

    def ended(unit: int, error: BaseException | None, how: str = "", why: str = "") -> None:
        if isinstance(error, Stop):
            raise error
        running.pop()
        failure = side.failure()
        if any(failure):
            how, why = failure
        elif given.run >= 0:  # whether the tests pass has been seen before
            how, why = "passed", ""
        elif given.remembers:
            fails = bool(how and how != "passed") or (error is not None and not is_skip(error))
            how, why = ("failed", CHANGING) if fails else ("passed", "")
        elif skips and error is not None and is_skip(error) and not side.is_raised(error) and skips_by(error):
            how = "passed"
        elif error is not None and not how:
            how, why = _how(error, side.is_raised), why_of(error)
        elif not how:
            fault = side.forbidden_change() or fault_of(unit)
            how, why = ("failed", fault) if fault else ("passed", "")
        if not say(["end", how, why, held()]):
            raise Stop

    judge, held = softening(given.run)
    judge |= {"__begin__": begin, "__ended__": ended, "__ask__": side.ask}
    judge |= {"__true__": true, "__enter__": enter, "__equal__": lambda left, right: left == right}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # texts that stand for functions are called
            code = compile(_without_lines(given.source), "<tests>", "exec", dont_inherit=True)
        space = vars(tests)
        space.update({"__file__": path_of(_TEST_FILE), **customary(code), **space, "__near__": same})
        code = _with_judge(code, judge)
        trouble = ""
        if given.pytest:
            trouble = _run_pytest(code, tests, given, skips, skips_by, begin, ended, side.is_raised, why_of)
        else:
            exec(code, space)
        if side.asked and not trouble:
            say(["asked", side.asked])
        say(["broken", trouble] if trouble else ["done"])
    except Stop:
        say(["stopped"])
    except BaseException as error:  # what the tests import is there
        say(["broken", line_of(error)])


def _without_lines(source: str) -> Any:
    """Parses tests onto one line but for what skips them: a solution may see the line that calls it."""
    import ast

    module = ast.parse(source)
    every: list[Any] = [node for node in ast.walk(module) if hasattr(node, "lineno")]
    for node in every:
        node.lineno = node.end_lineno = _LINE
        node.col_offset = node.end_col_offset = 0
    for statement in every:
        simple = isinstance(statement, (ast.Expr, ast.Raise, ast.Assign, ast.Return, ast.With))
        for node in ast.walk(statement) if simple and _SKIPPING.search(ast.unparse(statement)) else ():
            vars(node).update({"lineno": _SKIPS, "end_lineno": _SKIPS} if hasattr(node, "lineno") else {})
    return module


def _with_judge(code: types.CodeType, judge: dict[str, Any]) -> types.CodeType:
    constants = [
        _with_judge(each, judge)
        if isinstance(each, types.CodeType)
        else judge.get(each, each)
        if type(each) is str
        else each
        for each in code.co_consts
    ]
    return code.replace(co_consts=tuple(constants))


def _taken(modules: Sequence[str]) -> dict[str, Any]:
    """The built-ins as they are now, with an import of the modules that only compute as they are now.

    So a solution that changes these for as long as an assertion takes has changed nothing for the tests.
    """
    taken = dict(vars(sys.modules["builtins"]))
    copies = {name: types.ModuleType(name) for name in modules if name in _COMPUTING}
    for name, copied in copies.items():
        vars(copied).update(vars(sys.modules[name]))
    load = taken["__import__"]
    taken["__import__"] = lambda name, *given: copies[name] if name in copies else load(name, *given)
    return taken


def _watching(modules: Sequence[str], classes: Sequence[type] = ()) -> Callable[[], str]:
    """Returns what names a function or class that was replaced since then, "" for none.

    Watched are functions and classes of modules, what these classes define, constants of modules that compute, and the
    functions that the tests gave their own `classes`. What a module only imports may be set by others.
    """
    watched: list[tuple[Mapping[str, Any], str, Any, str]] = []
    for name in modules:
        held = vars(sys.modules[name])
        watched.append((sys.modules, name, sys.modules[name], name))
        for key, value in list(held.items()):
            if name in _WITH_DATA and type(value) in (int, float, str, tuple):
                watched.append((held, key, value, f"{name}.{key}"))
            if not callable(value) or "<locals>" in getattr(value, "__qualname__", ""):  # pytest sets these anew
                continue
            home = str(getattr(value, "__module__", None)).partition(".")[0].lstrip("_")
            if name in _SETTABLE:
                continue
            if isinstance(value, types.BuiltinFunctionType) or home == name.partition(".")[0].lstrip("_"):
                watched.append((held, key, value, f"{name}.{key}"))
                if isinstance(value, type) and value.__flags__ & _HEAP:
                    inner = vars(value)
                    watched += ((inner, part, each, f"{name}.{key}") for part, each in inner.items() if callable(each))
    for kind in classes:
        inner = vars(kind)
        functions = {part: each for part, each in inner.items() if isinstance(each, types.FunctionType)}
        watched += ((inner, part, each, f"{kind.__name__}.{part}") for part, each in functions.items())
    return lambda: next((where for held, key, value, where in watched if held.get(key) is not value), "")


def _is_of_solution(error: BaseException) -> bool:
    return any(frame.f_code.co_filename == FILE for frame, _ in walk_tb(error.__traceback__))


def _how(error: BaseException | None, is_raised: Callable[[BaseException], bool]) -> str:
    """Whether a unit failed or the solution raised what it ended with."""
    return "failed" if error is None or isinstance(error, AssertionError) or not is_raised(error) else "raised"


def _run_pytest(
    code: Any, tests: Any, given: Any, skips: bool, skips_by: Any, begin: Any, ended: Any, is_raised: Any, why_of: Any
) -> str:
    """Returns why the test module could not be collected, or "". `skips`: it may skip tests."""
    import pytest

    trouble: list[str] = []
    outcome: dict[str, tuple[str, str]] = {}

    def unit_of(item: Any) -> int:
        name = getattr(item, "originalname", None) or item.name
        owner = f"{item.cls.__name__}.{name}" if getattr(item, "cls", None) else name
        known = (given.items.get(each) for each in (getattr(item.obj, "__qualname__", ""), owner, name))
        return next((unit for unit in known if unit is not None), 0)

    def pytest_pycollect_makemodule(module_path: Any, parent: Any) -> Any:
        exec(code, vars(tests))
        module = pytest.Module.from_parent(parent, path=module_path)
        module._getobj = lambda: tests  # type: ignore[method-assign]  # of this one alone: a class could be found
        return module

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
            error = call.excinfo.value
            expected = hasattr(report, "wasxfail") and item.get_closest_marker("xfail") is not None
            by_solution = not expected and (is_raised(error) or (is_skip(error) and not skips_by(error)))
            outcome["fault"] = (
                ("passed", "skipped") if skips and not by_solution else ("raised", "the solution skips it")
            )
        elif report.failed and "fault" not in outcome:
            error = call.excinfo.value if call.excinfo is not None else None
            why = why_of(error) if error is not None else str(report.longrepr)[:300]
            outcome["fault"] = (_how(error, is_raised), why)
        return report

    def pytest_collection_modifyitems(items: list[Any]) -> None:
        items[:] = [item for item in items if given.first <= unit_of(item) <= given.last]

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

    hooks = {name: each for name, each in locals().items() if name.startswith("pytest_")}
    os.close(os.open(_TEST_FILE, os.O_CREAT))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    options = ["-qs", "--noconftest", "--assert=plain", "-c/dev/null", "--rootdir=.", "--import-mode=importlib"]
    options += [f"-pno:{name}" for name in ("cacheprovider", "faulthandler", "doctest", "junitxml")]
    pytest.main([*options, _TEST_FILE], plugins=[types.SimpleNamespace(**hooks)])
    return trouble[0] if trouble else ""
