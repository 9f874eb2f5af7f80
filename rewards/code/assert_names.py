"""The names in assert-style tests: parsed tests in; what the solution must define, and what the tests may not use, out.

What the tests use and do not define is what the solution must define. Names that the prompt, the built-ins or a library
define are the tests' own, so that a solution cannot redefine them.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections.abc import Sequence

from grpo.rewards.code.guest.customs import SOLUTION_MODULES
from grpo.rewards.code.guest.values import DATA_METHODS
from grpo.rewards.code.results import UnusableTests

UNITS = "__grpo_units__"
_UNSAFE = frozenset({"eval", "exec", "compile", "globals", "locals", "vars", "breakpoint", "__import__"})
_UNSAFE_MODULES = frozenset({"pickle", "marshal", "shelve", "dill", "importlib", "subprocess", "ctypes", "mock", "gc"})
# What these do, the solution would have to see: files, the environment, standard input; or calls of several threads.
_ELSEWHERE = frozenset({"tempfile", "shutil", "threading", "multiprocessing", "concurrent", "sqlite3"})
_ELSEWHERE_OF_OS = frozenset({"environ", "putenv", "chdir", "mkdir", "makedirs", "remove", "unlink", "rmdir", "rename"})
_ELSEWHERE_METHODS = frozenset({"write_text", "write_bytes"})
# Where tests do not import a library, it is theirs all the same, and never the solution's.
_LIBRARIES = {name: name for name in ("numpy", "pandas", "pytest", "scipy", "sympy", "torch")}
_LIBRARIES |= {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot"}


def refuse_unsafe(every: Sequence[ast.stmt]) -> None:
    """Refuses tests that could run what the solution returns, or that look for what is not here."""
    for node in (inner for statement in every for inner in ast.walk(statement)):
        named = ""
        if isinstance(node, ast.Name) and node.id in _UNSAFE:
            named = node.id
        elif isinstance(node, ast.Import):
            named = next((a.name for a in node.names if a.name.split(".")[0] in _UNSAFE_MODULES | _ELSEWHERE), "")
        elif isinstance(node, ast.ImportFrom):
            parts = {*(node.module or "").split("."), *(alias.name for alias in node.names)}
            named = next(iter(sorted(parts & (_UNSAFE_MODULES | _ELSEWHERE))), "")
        elif isinstance(node, ast.Attribute) and _changes_what_is_elsewhere(node):
            named = ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            named = "open"
        if named:
            raise UnusableTests(f"the tests use '{named}', which cannot be judged in two sandboxes")


def _changes_what_is_elsewhere(node: ast.Attribute) -> bool:
    """Returns whether an attribute stands for a change here that the solution, in its own sandbox, would not see."""
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    if owner == "os":
        return node.attr in _ELSEWHERE_OF_OS
    if isinstance(node.ctx, ast.Store) and (owner == "builtins" or ast.unparse(node) in ("sys.stdin", "sys.argv")):
        return True
    return node.attr in _ELSEWHERE_METHODS


def wanted_names(every: Sequence[ast.stmt], setup: Sequence[ast.stmt], entry_point: str) -> set[str]:
    """Returns the globals that the solution must define."""
    free = _free_names(every)
    imported = set()
    own = {*SOLUTION_MODULES, *_aliases_of_modules(every)}
    for node in (inner for statement in every for inner in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and node.module in SOLUTION_MODULES:
            imported |= {alias.name for alias in node.names if alias.name != "*"}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in own:
            imported.add(node.attr)
    trusted = _free_and_defined(setup)[1]
    modules = _module_names(every) & (sys.stdlib_module_names | _LIBRARIES.keys())
    found = {name for name in free if not hasattr(builtins, name)} - trusted - modules - {UNITS}
    found |= imported | ({entry_point} if entry_point else set())
    if not found:
        found = _outermost_called(every)
    return {name for name in found if not (name.startswith("__") and name.endswith("__"))}


def used_as_class(every: Sequence[ast.stmt], name: str) -> bool:
    """Returns whether tests use a global, or what calling it gives, by names that no plain data has."""
    nodes = [node for statement in every for node in ast.walk(statement)]
    made = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _is_call_of(node.value, name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr not in DATA_METHODS and node.attr[:2] != "__":
            owner = node.value
            if _is_call_of(owner, name) or (isinstance(owner, ast.Name) and owner.id in {name, *made}):
                return True
    return False


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def missing_imports(every: Sequence[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """Returns the imports of the libraries that the tests use without importing them."""
    missing = (_free_names(every) & _module_names(every) & _LIBRARIES.keys()) - names
    return [ast.Import([ast.alias(_LIBRARIES[name], name)]) for name in sorted(missing)]


def _free_names(every: Sequence[ast.stmt]) -> set[str]:
    free, defined = _free_and_defined(every)
    return free - defined


def _free_and_defined(statements: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """Returns the global names that statements use, and those that they define."""
    source = ast.unparse(ast.Module(list(statements), []))
    top = symtable.symtable(source, "tests", "exec")
    defined = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        used |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        tables.extend(table.get_children())
    return used, defined


def _module_names(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the names that are used with a dot after them only, as modules are."""
    dotted, bare = set(), set()
    for node in (inner for statement in every for inner in ast.walk(statement)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            dotted.add(id(node.value))
    names = [node for statement in every for node in ast.walk(statement) if isinstance(node, ast.Name)]
    bare = {node.id for node in names if id(node) not in dotted}
    return {node.id for node in names} - bare


def _outermost_called(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the function that each assertion calls first, for solutions that are named like a built-in."""
    found: set[str] = set()
    for node in (inner for statement in every for inner in ast.walk(statement) if isinstance(inner, ast.Assert)):
        called = [inner.func for inner in ast.walk(node.test) if isinstance(inner, ast.Call)]
        found |= set([function.id for function in called if isinstance(function, ast.Name)][:1])
    return found


def _aliases_of_modules(every: Sequence[ast.stmt]) -> set[str]:
    imports = [node for statement in every for node in ast.walk(statement) if isinstance(node, ast.Import)]
    return {alias.asname for node in imports for alias in node.names if alias.asname and alias.name in SOLUTION_MODULES}


def solution_aliases(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the names that solution modules and what is imported from them have in the tests."""
    found: set[str] = set()
    for node in (inner for statement in every for inner in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and node.module in SOLUTION_MODULES:
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name for alias in node.names if alias.name in SOLUTION_MODULES}
    return found
