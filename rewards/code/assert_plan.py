"""Assert-style tests, prepared for the split judge: their source in, a program with numbered units out.

Theory of operation. A unit is what can be passed or failed on its own: a top-level assertion together with the
statements that lead to it, an assertion of a `check(candidate)` function, a test function, a method of a test class.
Each is put into a `with` block that notes its ending, so that one failed assertion does not hide the others. What the
tests use and do not define is what the solution must define; names that the prompt or the built-ins define are the
tests' own, so that a solution cannot redefine them. Only the tests are parsed here, never a solution.
"""

from __future__ import annotations

import ast
import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grpo.rewards.code.assert_guards import guarded
from grpo.rewards.code.assert_names import (
    UNITS,
    free_names,
    missing_imports,
    refuse_foreign_classes,
    refuse_unsafe,
    seen_from_outside,
    solution_aliases,
    used_as_class,
    wanted_names,
)
from grpo.rewards.code.results import UnusableTests

_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Plan:
    """Tests, prepared.

    Attributes:
        setup: trusted definitions that the tests and the solution may use; "" for none.
        source: the tests with their units.
        units: how many units there are.
        names: the globals of the solution that the tests use.
        plain_classes: the classes that `setup` defines.
        tested_classes: the globals of the solution that the tests use as no function is used.
        imported: the globals of the solution that the tests import by name.
        optional: those that the tests only look at, and that the task says nothing of.
    """

    setup: str
    source: str
    units: int
    names: tuple[str, ...]
    plain_classes: tuple[str, ...]
    tested_classes: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


@functools.lru_cache(maxsize=4096)
def plan_tests(
    tests: tuple[str, ...], *, before: str = "", prompt: str = "", entry_point: str = "", safe: bool = True
) -> Plan:
    """Prepares tests.

    Args:
        tests: the source texts; each of several is one unit, unless it defines test functions.
        before: statements that run before them and may use the solution.
        prompt: code that the solution continues, whose other definitions the tests may use; "" for none.
        entry_point: the function under test, as the tests would write it (`f`, `Solution().f`), or "" to find the
            names in the tests.
        safe: refuse tests that might run what the solution returns.

    Raises:
        UnusableTests: they are no Python, assert nothing, or need what the judge cannot give.
    """
    entry = leading_name(entry_point)
    setup = _setup(prompt, entry)
    bodies = [_parsed(text, "the tests") for text in tests]
    leading = _parsed(before, "the code before the tests")
    every = [*leading, *(statement for body in bodies for statement in body)]
    if safe:
        refuse_unsafe(every)
    names = wanted_names(every, setup, entry)
    if safe:
        refuse_foreign_classes(every, names | solution_aliases(every))
    imports = missing_imports(every, setup, names)
    arranged = _Arranged(every, names, entry_point)
    arranged.add_raw(imports)
    if entry == entry_point and "candidate" in free_names(every) - names:
        arranged.add_raw(ast.parse(f"candidate = {entry}").body)
    arranged.add_raw(leading)
    for body in bodies:
        arranged.add(body, whole=len(bodies) > 1)
    arranged.finish(arranged.top)
    if arranged.count == 0:
        raise UnusableTests("the tests assert nothing")
    source = ast.unparse(guarded(arranged.top, every, arranged.asserting, names))
    classes = tuple(node.name for node in setup if isinstance(node, ast.ClassDef))
    tested = {name for name in names if used_as_class(every, name)} | ({entry} if "." in entry_point else set())
    optional = seen_from_outside(every, names - solution_aliases(every) - {entry, "Solution"}) if entry else ()
    return Plan(
        ast.unparse(ast.Module(setup, [])),
        source,
        arranged.count,
        tuple(sorted(names)),
        classes,
        tuple(sorted(tested)),
        tuple(sorted(solution_aliases(every))),
        tuple(sorted(optional)),
    )


def leading_name(entry_point: str) -> str:
    """Returns the global that an entry point begins with, in the form that Python gives to names.

    Raises:
        UnusableTests: it is no name and no method of one.
    """
    match = re.fullmatch(r"\s*([^\W\d]\w*)\s*(?:\(\s*\)\s*)?(?:\.\s*[^\W\d]\w*\s*)?", entry_point)
    if entry_point.strip() and match is None:
        raise UnusableTests(f"the entry point {entry_point!r} is no name")
    return unicodedata.normalize("NFKC", match[1]) if match else ""


class _Arranged:
    """Puts statements into units, one after the other."""

    def __init__(self, every: Sequence[ast.stmt], names: set[str], entry_point: str) -> None:
        self.top: list[ast.stmt] = []
        self.count = 0
        self._pending: list[ast.stmt] = []
        self._last: ast.With | None = None
        self._names = names | solution_aliases(every)
        functions = {node.name: node for node in every if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.asserting = _asserting(functions)
        called = _called_alone(every)
        self._entry = entry_point if "check" in functions and "check" not in called else ""
        self._spread = {name for name in called | {"check"} if name in self.asserting and not name.startswith("test")}
        self._spread = {name for name in self._spread if name == "check" or len(functions[name].args.args) <= 1}
        self._called = called

    def add_raw(self, body: Iterable[ast.stmt]) -> None:
        """Adds statements that belong to no unit."""
        self.top.extend(body)

    def add(self, body: Sequence[ast.stmt], *, whole: bool) -> None:
        """Adds one source text, as one unit if `whole` and if it is nothing but statements."""
        if whole and not any(isinstance(node, _BLOCKS) for node in body):
            kept = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
            self.top.extend(node for node in body if isinstance(node, ast.Import | ast.ImportFrom))
            if kept:
                self._unit(self.top, kept)
            return
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name in self._spread:
                self.top.append(self._spread_function(node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.top.append(node)
                if node.name.startswith("test") and node.name not in self._called:
                    self._unit(self.top, [_call_of_units("function", node.name)])
            elif isinstance(node, ast.ClassDef):
                self.top.append(node)
                for name in _test_methods(node):
                    self._unit(self.top, [_call_of_units("method", node.name, name)])
            elif not _is_main(node):
                self._statement(self.top, node)

    def finish(self, body: list[ast.stmt]) -> None:
        """Ends the units: what follows the last assertion belongs to it."""
        if body is self.top and self._entry:
            body.append(_call("check", [ast.parse(self._entry, mode="eval").body]))
        if self._pending and self._last is not None:
            self._last.body.extend(self._pending)
        elif self._pending:
            self._unit(body, [])
        self._pending = []
        self._last = None

    def _statement(self, body: list[ast.stmt], node: ast.stmt) -> None:
        """Adds one statement that defines no function or class; `assert True` is nothing to pass."""
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
            return
        if _calls(node, self._spread):
            body.extend(self._pending)
            self._pending, self._last = [], None
            body.append(node)
        elif _asserts(node, self.asserting):
            self._unit(body, [node])
        elif _mentions(node, self._names) or self._pending:
            self._pending.append(node)
        else:
            body.append(node)

    def _unit(self, body: list[ast.stmt], statements: list[ast.stmt]) -> None:
        number = ast.Constant(self.count)
        units = ast.Name(UNITS, ast.Load())
        block = ast.With([ast.withitem(ast.Call(units, [number], []))], [*self._pending, *statements])
        wanted = ast.Call(ast.Attribute(units, "wanted", ast.Load()), [number], [])
        declared = [node for node in block.body if isinstance(node, ast.Global | ast.Nonlocal)]
        block.body = [node for node in block.body if node not in declared] or [ast.Pass()]
        body.extend(declared)
        body.append(ast.If(wanted, [block], []))
        self._pending, self._last = [], block
        self.count += 1

    def _spread_function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Returns a function whose assertions are units of their own."""
        outer, self._pending, self._last = (self._pending, self._last), [], None
        known = self._names
        self._names = known | {argument.arg for argument in node.args.args}
        body: list[ast.stmt] = []
        for statement in node.body:
            if isinstance(statement, _BLOCKS):
                body.append(statement)
            else:
                self._statement(body, statement)
        self.finish(body)
        self._names = known
        self._pending, self._last = outer
        return ast.FunctionDef(node.name, node.args, body or [ast.Pass()], [], node.returns, None, lineno=0)


def _parsed(text: str, what: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableTests(f"{what} are no Python: {error}") from error


def _setup(prompt: str, entry_point: str) -> list[ast.stmt]:
    """Returns the definitions of a prompt but for the one to be written."""
    if not prompt:
        return []
    for text in (prompt + "\n    pass\n", prompt):
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return [node for node in body if getattr(node, "name", "") != entry_point]
    return []


def _asserting(functions: Mapping[str, ast.stmt]) -> set[str]:
    """Returns the functions that assert, themselves or through each other."""
    found = {name for name, node in functions.items() if any(isinstance(inner, ast.Assert) for inner in ast.walk(node))}
    while True:
        more = {name for name, node in functions.items() if name not in found and _calls(node, found)}
        if not more:
            return found
        found |= more


def _called_alone(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the functions that a top-level statement calls."""
    calls = [node.value for node in every if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def _calls(node: ast.AST, names: set[str]) -> bool:
    return any(
        isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in names
        for inner in ast.walk(node)
    )


def _asserts(node: ast.stmt, asserting: set[str]) -> bool:
    return any(isinstance(inner, ast.Assert) for inner in ast.walk(node)) or _calls(node, asserting)


def _mentions(node: ast.stmt, names: set[str]) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def _test_methods(node: ast.ClassDef) -> list[str]:
    is_test = node.name.startswith("Test") or any(
        isinstance(kind, ast.Attribute | ast.Name) and ast.unparse(kind).endswith("TestCase") for kind in node.bases
    )
    methods = [inner.name for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for name in methods if name.startswith("test")] if is_test else []


def _is_main(node: ast.stmt) -> bool:
    """Returns whether a statement only runs the tests."""
    text = ast.unparse(node) if isinstance(node, ast.If | ast.Expr) else ""
    return text.startswith(("if __name__ ==", "unittest.main(", "pytest.main("))


def _call(function: str, given: list[ast.expr]) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(function, ast.Load()), given, []))


def _call_of_units(method: str, *names: str) -> ast.stmt:
    given: list[ast.expr] = [ast.Name(names[0], ast.Load()), *(ast.Constant(name) for name in names[1:])]
    return ast.Expr(ast.Call(ast.Attribute(ast.Name(UNITS, ast.Load()), method, ast.Load()), given, []))
