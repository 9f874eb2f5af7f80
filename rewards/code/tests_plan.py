"""Plans how tests are judged: their units, the names that the solution must define, and by which of two judges.

The tests alone decide, before any completion is read. Tests that only exchange plain data with functions are `calls`:
they run in one sandbox and the functions in another. All others are `objects`: they run in one process with the
solution, by pytest where they are written for it.

A unit is what can pass or fail on its own: a top-level assertion with the statements that lead to it, an assertion of a
`check(candidate)` function, a test function, a method of a test class. Only tests are parsed here, never a solution.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from grpo.rewards.code.assertions import expects_or_asserts
from grpo.rewards.code.functions import has_state
from grpo.rewards.code.guest.customs import SOLUTION_MODULES
from grpo.rewards.code.instrument import Instrument, Prepared
from grpo.rewards.code.names import free_names, missing_imports, mutates, solution_aliases, wanted_names
from grpo.rewards.code.plain_calls import calls_only
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.syntax import FUNCTIONS, called, called_by_name, find, mentions, names_in

Kind = Literal["calls", "objects"]

_HOOKS = ("setup_function", "teardown_function", "setup_module", "teardown_module", "setUpModule", "tearDownModule")
# nan, isnan, x != x, and what makes them of other numbers
_NOT_A_NUMBER = re.compile(r"(?<![a-z])(?:is)?nan|\binf(?:inity)?\b|(?<!\w)(\w+) != \1(?!\w)", re.IGNORECASE)
_LONGEST_LINE = 60  # characters of a line that is no Python
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Plan:
    """Tests, prepared.

    Attributes:
        kind: by which judge.
        setup: trusted definitions that the tests and the solution may use; "" for none.
        source: the tests with their units.
        units: how many units there are.
        names: the globals of the solution that the tests use.
        pytest: pytest runs them.
        items: the units by the names of test functions, `Class.method` in classes; for pytest.
        modules: what the tests import.
        prepared: what is known of their assertions.
        numbers: the tests say nothing of what is not a number.
        in_place: what a call does to its arguments matters.
        stateless: the tests show no sign that an answer depends on more than the arguments.
    """

    kind: Kind
    setup: str
    source: str
    units: int
    names: tuple[str, ...]
    pytest: bool = False
    items: tuple[tuple[str, int], ...] = ()
    modules: tuple[str, ...] = ()
    prepared: Prepared = field(default_factory=Prepared)
    numbers: bool = True
    in_place: bool = False
    stateless: bool = False


@functools.lru_cache(maxsize=4096)
def plan_tests(tests: tuple[str, ...], *, before: str = "", prompt: str = "", entry_point: str = "") -> Plan:
    """Prepares tests. Raises UnusableTests: they are no Python, assert nothing, or use what nobody defines.

    Args:
        tests: the source texts; each of several is one unit, unless it defines test functions.
        before: statements that run before them and may use the solution.
        prompt: code that the solution continues, whose other definitions the tests may use; "" for none.
        entry_point: the function under test, as the tests write it (`f`, `Solution().f`); "" to find it in the tests.
    """
    entry = leading_name(entry_point)
    setup = _setup(prompt, entry)
    bodies = [_with_main(_parsed(text, "the tests")) for text in tests]
    leading = _parsed(before, "the code before the tests")
    every = [*leading, *(statement for body in bodies for statement in body)]
    names = wanted_names(every, setup, entry)
    imports: list[ast.stmt] = missing_imports(every, setup, names)
    if entry == entry_point and "candidate" in free_names(every) - names:
        imports += ast.parse(f"candidate = {entry}").body
    by_pytest = _needs_pytest(every, names)
    methods = set() if by_pytest else _methods_of_new(every, names)
    if methods:  # `Solution().f` is a function like any other
        bodies = [[_Methods(methods).visit(node) for node in body] for body in bodies]
        every = [*leading, *(statement for body in bodies for statement in body)]
        names = names - {"Solution"} | methods
    asserts = _asserts_something(every)  # before they are rewritten
    sure = not re.search(r"skip|xfail|expectedFailure", "\n".join((before, *tests)))
    split = not by_pytest and calls_only(every, setup, names)
    if split and "." in entry_point:
        entry_point = entry_point.rpartition(".")[2].strip()  # a method of a new object each time
        names = {entry_point}
    in_place, stateless = mutates(every, names), not has_state(every, {*names, "candidate"})
    stand_ins = {*names, *solution_aliases(every), *({"candidate"} if entry else ())}
    instrument = Instrument(stand_ins, every, split=split, sure=sure)
    items: dict[str, int] = {}
    if by_pytest:
        top = _for_pytest([*imports, *every], instrument, items)
    else:
        arranged = _Arranged([*imports, *leading], every, names, entry_point, instrument)
        for body in bodies:
            arranged.add(body, whole=len(bodies) > 1)
        arranged.finish(arranged.top)
        top = arranged.top
    count = len(items) if by_pytest else instrument.units
    if count == 0 or not asserts:
        raise UnusableTests("the tests assert nothing")
    source = ast.unparse(ast.fix_missing_locations(ast.Module(top, [])))
    return Plan(
        "calls" if split else "objects",
        ast.unparse(ast.Module(setup, [])),
        source,
        count,
        tuple(sorted(names)),
        by_pytest,
        tuple(items.items()),
        tuple(sorted(_modules_of([*imports, *every]) - solution_aliases(every))),
        instrument.finished(count),
        _NOT_A_NUMBER.search(" ".join((*tests, before))) is None,
        in_place,
        stateless,
    )


def _asserts_something(every: Sequence[ast.stmt]) -> bool:
    asserted = [
        node for node in find(every, ast.Assert) if not (isinstance(node.test, ast.Constant) and node.test.value)
    ]
    words = [called(node) for node in find(every, ast.Call)]
    return bool(asserted or find(every, ast.Raise)) or any(expects_or_asserts(word) for word in words)


def _methods_of_new(every: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """The methods of `Solution()` that tests use, if they use nothing else of it and no such names."""
    made = [node for node in find(every, ast.Attribute) if ast.unparse(node.value) == "Solution()"]
    methods, used = {node.attr for node in made}, names_in(every)
    alone = "Solution" in names and used.count("Solution") == len(made) and not methods & {*used, *dir(builtins)}
    return methods if alone else set()


class _Methods(ast.NodeTransformer):
    """Writes `f` for `Solution().f`, and imports these functions instead of the class."""

    def __init__(self, methods: Collection[str]) -> None:
        self._methods = sorted(methods)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        if node.module in SOLUTION_MODULES and any(alias.name == "Solution" for alias in node.names):
            kept = [alias for alias in node.names if alias.name != "Solution"]
            node.names = [*kept, *(ast.alias(name) for name in self._methods)]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return ast.Name(node.attr, ast.Load()) if ast.unparse(node.value) == "Solution()" else node


def leading_name(entry_point: str) -> str:
    """Returns the global that an entry point begins with, NFKC-normalised. Raises UnusableTests: no name."""
    match = re.fullmatch(r"\s*([^\W\d]\w*)\s*(?:\(\s*\)\s*)?(?:\.\s*[^\W\d]\w*\s*)?", entry_point)
    if entry_point.strip() and match is None:
        raise UnusableTests(f"the entry point {entry_point!r} is no name")
    return unicodedata.normalize("NFKC", match[1]) if match else ""


def _needs_pytest(every: Sequence[ast.stmt], names: Collection[str]) -> bool:
    """Whether tests need a runner: classes, fixtures, marks, unittest; `names`: the solution's, no test classes."""
    classes = [node for node in every if isinstance(node, ast.ClassDef)]
    functions = [node for node in every if isinstance(node, FUNCTIONS)]
    given = [node for node in functions if node.name.startswith("test") and (node.args.args or node.decorator_list)]
    fixtures = [node for node in functions if node.name in _HOOKS or "fixture" in _texts(node.decorator_list)]
    cases = _test_cases(every, names)
    return bool(given or fixtures) or any(node.name in cases or _test_methods(node, names, cases) for node in classes)


def _texts(nodes: Iterable[ast.AST]) -> str:
    return "\n".join(map(ast.unparse, nodes))


def _test_cases(every: Sequence[ast.AST], names: Collection[str]) -> set[str]:
    bases = {node.name: set(map(ast.unparse, node.bases)) for node in find(every, ast.ClassDef)}
    cases: set[str] = set()
    for _ in bases:
        cases |= {
            name
            for name, kinds in bases.items()
            if kinds & cases or any(kind.endswith("TestCase") and kind not in names for kind in kinds)
        }
    return cases


def _test_methods(
    node: ast.ClassDef, names: Collection[str], cases: Collection[str], parents: Collection[str] = ()
) -> list[str]:
    """The names of the tests of a class, in the order in which they run.

    `names`: the globals of the solution. `cases`: the classes of unittest. `parents`: the classes others derive from.
    """
    methods = [inner.name for inner in node.body if isinstance(inner, FUNCTIONS) and inner.name.startswith("test")]
    of_tests = any("Test" in ast.unparse(kind) and ast.unparse(kind) not in names for kind in node.bases)
    collected = node.name.startswith("Test") or node.name in parents or node.name in cases or of_tests
    return (sorted(methods) if node.name in cases else methods) if collected else []


def _for_pytest(
    body: Sequence[ast.stmt],
    instrument: Instrument,
    items: dict[str, int],
    owner: ast.ClassDef | None = None,
    path: str = "",
    parents: Collection[str] = (),
    cases: Collection[str] = (),
) -> list[ast.stmt]:
    """Tests for pytest, or what stands in a class of them, the `owner`.

    `items`: gets the units by the names of their functions, which begin with the `path` of their classes. `parents`:
    the classes from which others derive. `cases`: the classes of unittest.
    """
    parents = parents or {ast.unparse(kind) for node in find(body, ast.ClassDef) for kind in node.bases}
    cases = cases or _test_cases(body, instrument.names)
    done: list[ast.stmt] = []
    methods = _test_methods(owner, instrument.names, cases, parents) if owner else []
    for method in methods:
        items.setdefault(f"{path}{method}", len(items))
    for node in body:
        if isinstance(node, FUNCTIONS) and (node.name in methods if owner else node.name.startswith("test")):
            unit = items.setdefault(f"{path}{node.name}", len(items))
            node.body = instrument.unit(unit, node.body, sure=not find(node, ast.Return))
        elif isinstance(node, ast.ClassDef):
            node.body = _for_pytest(node.body, instrument, items, node, f"{path}{node.name}.", parents, cases)
        elif _is_main(node):
            continue
        else:
            node = instrument.visit(node)
        done.append(node)
    return done


class _Arranged:
    """Puts statements into units, for tests that run as they stand; `top`: the statements, `leading` ones first."""

    def __init__(
        self,
        leading: Sequence[ast.stmt],
        every: Sequence[ast.stmt],
        names: set[str],
        entry_point: str,
        instrument: Instrument,
    ) -> None:
        self.top = list(leading)
        self._instrument = instrument
        self._pending: list[ast.stmt] = []
        self._open: tuple[list[ast.stmt], list[ast.stmt]] | None = None
        self._names = names | solution_aliases(every)
        functions = {node.name: node for node in every if isinstance(node, FUNCTIONS)}
        self._asserting = _asserting(functions)
        self._called = {called_by_name(node.value) for node in every if isinstance(node, ast.Expr)} - {""}
        self._entry = entry_point if "check" in functions and "check" not in self._called else ""
        spread = {name for name in self._called | {"check"} if name in self._asserting and not name.startswith("test")}
        self._spread = {name for name in spread if len(functions[name].args.args) <= 1}

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
            elif isinstance(node, FUNCTIONS):
                test = node.name.startswith("test") and node.name not in self._called
                if not test:
                    if node.decorator_list or node.args.defaults or any(node.args.kw_defaults):
                        self._flush(self.top)  # as these may use it
                    self.top.append(self._instrument.visit(node))
                    continue
                self._flush(self.top)
                unit = self._instrument.next_unit()
                node.body = self._instrument.unit(unit, node.body, sure=not find(node, ast.Return))
                self.top.append(node)
                call = f"__import__('asyncio').run({node.name}())" if isinstance(node, ast.AsyncFunctionDef) else ""
                self.top.append(self._instrument.block(unit, ast.parse(call or f"{node.name}()").body))
            elif isinstance(node, ast.ClassDef):
                self._flush(self.top)
                self.top.append(node)
            elif not _is_main(node):
                self._statement(self.top, node)

    def finish(self, body: list[ast.stmt]) -> None:
        """Ends the units: what follows the last assertion belongs to it."""
        if body is self.top and self._entry:
            body.extend(ast.parse(f"check({self._entry})").body)
        if self._pending and self._open is None:
            self._unit(body, [])
        elif self._open is not None:
            self._open[1].extend(self._pending)
        self._pending = []
        self._close()

    def _statement(self, body: list[ast.stmt], node: ast.stmt) -> None:
        """Adds one statement that defines no function or class; `assert True` is nothing to pass."""
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
            return
        if _calls(node, self._spread):
            self._flush(body)
            body.append(node)
        elif _asserts(node, self._asserting):
            self._unit(body, [node])
        elif mentions(node, self._names) or self._pending:
            self._pending.append(node)
        else:
            self._close()
            body.append(node)

    def _flush(self, body: list[ast.stmt]) -> None:
        """Writes what belongs to no unit, as what follows may use it."""
        self._close()
        body.extend(self._pending)
        self._pending = []

    def _unit(self, body: list[ast.stmt], statements: list[ast.stmt]) -> None:
        self._close()
        self._open = (body, [*self._pending, *statements])
        self._pending = []

    def _close(self) -> None:
        if self._open is None:
            return
        (body, statements), self._open = self._open, None
        declared = [node for node in statements if isinstance(node, ast.Global | ast.Nonlocal)]
        kept = [node for node in statements if node not in declared] or [ast.Pass()]
        body.extend(declared)
        number = self._instrument.next_unit()
        body.append(self._instrument.block(number, self._instrument.unit(number, kept)))

    def _spread_function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._close()
        outer, self._pending = self._pending, []
        known = self._names
        self._names = known | {argument.arg for argument in node.args.args}
        body: list[ast.stmt] = []
        for statement in node.body:
            if isinstance(statement, _BLOCKS):
                self._close()
                body.append(self._instrument.visit(statement))
            else:
                self._statement(body, statement)
        self.finish(body)
        self._names, self._pending = known, outer
        return ast.FunctionDef(node.name, node.args, body or [ast.Pass()], [], node.returns, None, lineno=0)


def _parsed(text: str, what: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        line = (error.text or "").strip()[:_LONGEST_LINE]
        shown = f": {line}" if line else ""
        raise UnusableTests(f"{what} are no Python: {error.msg} in line {error.lineno}{shown}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnusableTests(f"{what} are no Python: {error}") from error


def _setup(prompt: str, entry_point: str) -> list[ast.stmt]:
    """The definitions of a prompt but for the one to be written."""
    if not prompt:
        return []
    for text in (prompt + "\n    pass\n", prompt):
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return [node for node in body if getattr(node, "name", "") != entry_point]
    return []


def _modules_of(every: Sequence[ast.stmt]) -> set[str]:
    names = {alias.name for node in find(every, ast.Import) for alias in node.names}
    names |= {node.module for node in find(every, ast.ImportFrom) if node.module and not node.level}
    return {name for name in names if name.partition(".")[0] not in SOLUTION_MODULES}


def _asserting(functions: Mapping[str, ast.stmt]) -> set[str]:
    names: set[str] = set()
    while True:
        more = {name for name, node in functions.items() if find(node, ast.Assert) or _calls(node, names)}
        if more == names:
            return names
        names = more


def _calls(node: ast.AST, names: Collection[str]) -> bool:
    return any(called_by_name(call) in names for call in find(node, ast.Call))


def _asserts(node: ast.stmt, asserting: set[str]) -> bool:
    """Expecting an exception is an assertion too."""
    expects = any(ast.unparse(call.func) in ("pytest.raises", "raises") for call in find(node, ast.Call))
    return expects or bool(find(node, ast.Assert)) or _calls(node, asserting)


def _with_main(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a text, with those of its main block if no other statement runs a test.

    The solution is loaded already, so statements that only add to the search path are left out.
    """
    others = [node for node in body if not _adds_to_path(node)]
    if all(ast.unparse(node) != "sys.path" for node in find(others, ast.Attribute)):
        body = others
    rest = [node for node in body if not _is_main(node)]
    names = [node.name for node in rest if isinstance(node, FUNCTIONS)]
    tested = any(name.startswith("test") or name == "check" for name in names)
    if tested or any(isinstance(node, ast.Assert | ast.ClassDef | ast.For | ast.With) for node in rest):
        return body
    if any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in rest):
        return body
    guarded = [statement for node in body if isinstance(node, ast.If) and _is_main(node) for statement in node.body]
    return [*rest, *(statement for statement in guarded if not _is_main(statement))]


def _adds_to_path(node: ast.stmt) -> bool:
    calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return calls and ast.unparse(node).startswith(("sys.path.insert(", "sys.path.append("))


def _is_main(node: ast.stmt) -> bool:
    text = ast.unparse(node) if isinstance(node, ast.If | ast.Expr) else ""
    return text.startswith(("if __name__ ==", "unittest.main(", "pytest.main("))
