"""Finds the names in tests that the solution must define, and the imports that tests leave out.

The solution must define what the tests use and do not define. Names that the prompt, the built-ins or a library define
are the tests' own, so that a solution cannot redefine them.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import symtable
import sys
from collections.abc import Sequence

from grpo.rewards.code.functions import conditions
from grpo.rewards.code.guest.customs import NAMES, SOLUTION_MODULES
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.syntax import bindings, called, called_by_name, derived_names, find, literal, mentions, names_in

# Where tests do not import a library, it is theirs all the same, and never the solution's.
_LIBRARIES = {name: name for name in ("numpy", "pandas", "pytest", "scipy", "sympy", "torch")}
_LIBRARIES |= {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot"}
_TESTERS = {
    "math": (
        "acos asin atan cosh degrees dist e erf exp expm1 fabs fmod frexp fsum gamma isclose isfinite isinf isnan"
        " lgamma log1p modf nan perm radians sinh tanh tau trunc"
    ),
    "operator": "attrgetter itemgetter methodcaller",
    "itertools": "compress dropwhile filterfalse pairwise starmap takewhile tee",
    "functools": "total_ordering wraps",
    "collections": "UserDict UserList UserString",
    "collections.abc": "AsyncGenerator AsyncIterator Awaitable Hashable MutableMapping MutableSequence Sized",
    "contextlib": "contextmanager nullcontext redirect_stdout suppress",
    "dataclasses": "asdict astuple fields is_dataclass",
    "enum": "IntEnum",
    "datetime": "date datetime timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "copy": "deepcopy",
    "io": "StringIO",
    "statistics": "mean median stdev",
    "string": "punctuation",
    "types": "FunctionType GeneratorType SimpleNamespace",
    "unittest": "TestCase",
}
CUSTOMARY = {name: module for name, (module, attribute) in NAMES.items() if attribute}
"""The names that tests use without importing them, and the modules that have them."""
CUSTOMARY |= {name: module for module, names in _TESTERS.items() for name in names.split()}
_CONSTANTS = {"ascii_letters", "ascii_lowercase", "ascii_uppercase", "digits", "punctuation"}
_CONSTANTS |= {"e", "inf", "nan", "pi", "tau"}
_CLASSES = frozenset({"date", "datetime", "defaultdict", "deque", "namedtuple", "timedelta", "timezone"})
CUSTOMARY |= {"bisect": "bisect", "copy": "copy"}


def wanted_names(every: Sequence[ast.stmt], setup: Sequence[ast.stmt], entry_point: str) -> set[str]:
    """Returns the globals that the solution must define.

    With an entry point that the tests use, those are it and what they import from the solution: another undefined name
    is a fault of the tests. Without one a customary name (`Counter`, `gcd`) is the tests' own where they use it beside
    a name that is not, and the solution's where an assertion asks for nothing else. Raises UnusableTests: the tests use
    an undefined name.
    """
    free = free_names(every)
    imported, all_of_it = _imported_from_solution(every)
    trusted = _free_and_defined(setup)[1]
    modules = _module_names(every) & (sys.stdlib_module_names | _LIBRARIES.keys())
    open_names = {name for name in free if not hasattr(builtins, name)} - trusted - modules - {"__near__"}
    open_names = {name for name in open_names - imported if not (name.startswith("__") and name.endswith("__"))}
    open_names -= {"candidate"} if entry_point else set()
    used = entry_point in free or "check" in [node.name for node in every if isinstance(node, ast.FunctionDef)]
    wanted = imported | ({entry_point} if entry_point else set())
    if (used or imported) and entry_point and not all_of_it:
        wanted |= {"Solution"} & open_names
        wanted |= _compared_with_literals(every, open_names - _CONSTANTS)
        called = {name for name in open_names & CUSTOMARY.keys() if name not in _CONSTANTS}
        _refuse_unknown(open_names - wanted - (CUSTOMARY.keys() - _bare_values(every, called)))
    elif imported and not all_of_it:
        _refuse_unknown(open_names - wanted - CUSTOMARY.keys())
    else:
        asked = _asked_for_alone(every, open_names)
        wanted |= {name for name in open_names if name not in CUSTOMARY or name in asked}
        wanted |= _compared_with_literals(every, open_names - _CONSTANTS)
        _refuse_unknown(_bare_values(every, wanted - imported - {entry_point}) if len(wanted) > 1 else set())
    return wanted or {name for name in _outermost_called(every) if name != "__near__"}


def _imported_from_solution(every: Sequence[ast.stmt]) -> tuple[set[str], bool]:
    taken = [node for node in find(every, ast.ImportFrom) if node.module in SOLUTION_MODULES]
    imported = {alias.name for node in taken for alias in node.names}
    aliases = [alias for node in find(every, ast.Import) for alias in node.names if alias.name in SOLUTION_MODULES]
    own = {alias.asname or alias.name for alias in aliases}
    dotted = [node for node in find(every, ast.Attribute) if isinstance(node.value, ast.Name)]
    imported |= {node.attr for node in dotted if ast.unparse(node.value) in own}
    for node in find(every, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            imported |= _patched(node, own)
    return imported - {"*"}, "*" in imported


def _patched(node: ast.Call, own: set[str]) -> set[str]:
    """The global of the solution that `monkeypatch.setattr` replaces."""
    given = [str(each.value) if isinstance(each, ast.Constant) else ast.unparse(each) for each in node.args]
    if len(given) == 3 and given[0] in own:
        return {given[1]}
    module, _, name = given[0].rpartition(".") if given else ("", "", "")
    return {name} if len(given) == 2 and module in SOLUTION_MODULES else set()


def _refuse_unknown(names: set[str]) -> None:
    if names:
        raise UnusableTests(f"the tests use '{min(names)}', which neither they nor the task define")


def _asked_for_alone(every: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """The customary names that some assertion uses without another name of these."""
    defined: dict[str, set[str]] = {}
    alone: set[str] = set()
    for statement in every:
        used, bound = _free_and_defined([statement])
        mentioned = set().union(*(defined.get(name, set()) for name in used)) | (used & names)
        for name in bound:
            defined[name] = defined.get(name, set()) | mentioned
        if find(statement, ast.Assert) and mentioned <= CUSTOMARY.keys():
            functions = {name for name in mentioned if name not in _CLASSES and not name[0].isupper()}
            alone |= functions or mentioned
    for node in find(every, ast.Compare):
        for call, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            known = isinstance(call, ast.Call) and literal(other) and all(map(literal, call.args))
            alone |= {called_by_name(call)} & names - _CLASSES if known else set()
    return alone


def _bare_values(every: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """Variable-like names that the tests only compare something with."""
    compared = {id(side) for node in find(every, ast.Compare) for side in (node.left, *node.comparators)}
    used = {node.id for node in find(every, ast.Name) if id(node) not in compared}
    return {name for name in names - used if name == name.lower()}


def _compared_with_literals(every: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """Names that tests only compare with values that stand in the tests, as the globals of a solution are.

    So a solution gains nothing by them: `assert items == [3]` asks for just that; `f(3) == expected` is no such use.
    """
    compared: set[int] = set()
    for node in find(every, ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.Is):
            pairs = [(node.left, node.comparators[0]), (node.comparators[0], node.left)]
            compared |= {id(side) for side, other in pairs if isinstance(side, ast.Name) and literal(other)}
    return names - {node.id for node in find(every, ast.Name) if id(node) not in compared}


def missing_imports(every: Sequence[ast.stmt], setup: Sequence[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """Returns the imports that the tests leave out. Raises UnusableTests: a module's name is not used as a module."""
    free = free_names(every) - names - _free_and_defined(setup)[1]
    dotted = free & _module_names(every)
    imports: list[ast.stmt] = []
    for name in sorted(free):
        if name in dotted and name in _LIBRARIES:
            imports.append(ast.Import([ast.alias(_LIBRARIES[name], name if name != _LIBRARIES[name] else None)]))
        elif name in dotted and name in sys.stdlib_module_names and not _is_of_namesake(every, name):
            imports.append(ast.Import([ast.alias(name)]))
        elif name in CUSTOMARY and not hasattr(builtins, name):
            module = CUSTOMARY[name]
            imports.append(ast.ImportFrom(module, [ast.alias(name)], 0))
    return imports


def _is_of_namesake(every: Sequence[ast.stmt], name: str) -> bool:
    """Whether tests ask for what the class of a module has, and the module has not: `datetime.now()`."""
    if CUSTOMARY.get(name) != name:
        return False
    asked = {node.attr for node in find(every, ast.Attribute) if ast.unparse(node.value) == name}
    module = importlib.import_module(name)
    return not all(hasattr(module, attribute) for attribute in asked)


def free_names(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the global names that statements use and do not define."""
    free, defined = _free_and_defined(every)
    return free - defined


def _free_and_defined(statements: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    source = ast.unparse(ast.Module(list(statements), []))
    top = symtable.symtable(source, "tests", "exec")
    defined = {name for node in find(statements, ast.FunctionDef) for name in _set_on_module(node)}
    defined |= {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        used |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        defined |= {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
        tables.extend(table.get_children())
    return used, defined


def _set_on_module(node: ast.FunctionDef) -> set[str]:
    if node.name != "setup_module" or not node.args.args:
        return set()
    attributes = [each for each in find(node, ast.Attribute) if isinstance(each.ctx, ast.Store)]
    return {each.attr for each in attributes if ast.unparse(each.value) == node.args.args[0].arg}


def _module_names(every: Sequence[ast.stmt]) -> set[str]:
    """Names that are only used with a dot after them, as modules are."""
    dotted = {id(node.value) for node in find(every, ast.Attribute)}
    return set(names_in(every)) - {node.id for node in find(every, ast.Name) if id(node) not in dotted}


def _outermost_called(every: Sequence[ast.stmt]) -> set[str]:
    """The function that each assertion calls first, for solutions named like a built-in."""
    calls = [[called_by_name(call) for call in find(node.test, ast.Call)] for node in find(every, ast.Assert)]
    return {next(filter(None, names)) for names in calls if any(names)}


def solution_aliases(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the names that solution modules and what is imported from them have in the tests."""
    taken = [alias for node in find(every, ast.ImportFrom) if node.module in SOLUTION_MODULES for alias in node.names]
    taken += [alias for node in find(every, ast.Import) for alias in node.names if alias.name in SOLUTION_MODULES]
    return {alias.asname or alias.name for alias in taken}


def mutates(every: Sequence[ast.stmt], names: set[str]) -> bool:
    """Returns whether tests look at what a call does to its arguments.

    They do where a call stands alone, and is not to raise, or gives None, where what was given is compared itself, and
    where an assertion asks for it and for no answer. Elsewhere a solution could empty an argument so that tests ask for
    less: `assert f(d) == {v: k for k, v in d.items()}`.
    """
    functions = names | {"candidate"}
    blocks = [node for node in find(every, ast.With) if called(node.items[0].context_expr) == "raises"]
    raising = {id(statement) for block in blocks for statement in block.body}
    if any(_outermost(node.value) in functions for node in find(every, ast.Expr) if id(node) not in raising):
        return True
    calls = [node for node in find(every, ast.Call) if _outermost(node) in functions]
    arguments = [each for call in calls for each in (*call.args, *(named.value for named in call.keywords))]
    given = set(names_in(each for each in arguments if not find(each, ast.Call, ast.BinOp)))
    others = [each for each in bindings(every) if isinstance(each[1], ast.Name | ast.Subscript)]
    given |= {name for targets, value, _ in others if mentions(value, given) for name in names_in(targets)}
    answers = derived_names(every, calls) - given
    compared: set[str] = set()
    for node in find(every, ast.Compare):
        sides = [node.left, *node.comparators]
        none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
        if none and any(_outermost(side) in functions for side in sides):
            return True
        compared |= {side.id for side in sides if isinstance(side, ast.Name)}
    asked = [set(names_in(test)) for test in conditions(every)]
    compared |= {name for each in asked if not each & (answers | functions) for name in each}
    return bool(given & compared)


def _outermost(node: ast.expr) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    while isinstance(function, ast.Attribute):
        function = function.value.func if isinstance(function.value, ast.Call) else function.value
    return function.id if isinstance(function, ast.Name) else ""
