"""Decides whether tests only call functions with plain data and use the results as plain data.

If that is not sure, the answer is no, and the tests run in one process with the solution.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Sequence

from grpo.rewards.code.given_data import GivenData
from grpo.rewards.code.guest.customs import SOLUTION_MODULES
from grpo.rewards.code.syntax import bindings, called_by_name, derived_names, find, literal, names_in, words

_MODULES = words(
    "math cmath copy re itertools functools collections string typing json fractions operator heapq bisect"
    " statistics random datetime numpy pytest __future__ decimal"
)
# What changes the solution's surroundings, or looks at more than values.
_ELSEWHERE = words(
    "seed setstate getcontext setcontext localcontext setrecursionlimit stdout stdin stderr environ settrace open"
    " input eval exec compile globals locals vars breakpoint __import__ redirect_stdout capsys print isgenerator"
    " iscoroutinefunction warns deprecated_call catch_warnings simplefilter GeneratorType StopIteration"
    " GeneratorExit StopAsyncIteration attrgetter methodcaller"
)
_SIDE_BY_SIDE = (ast.Is, ast.IsNot)
_KINDS = words(
    "int float str bytes bool complex list tuple dict set frozenset Iterable Sequence Mapping Sized Container"
    " Hashable Collection Number Integral Real object NoneType"
)
_METHODS = frozenset(
    name for kind in (str, bytes, tuple, int, float, complex) for name in dir(kind) if not name.startswith("_")
) | frozenset(("keys", "values", "items", "get"))
_PARTS = words("real imag numerator denominator")
_TEXTS = words("str repr format ascii")
_NO_VALUES = words("islice takewhile dropwhile next iter callable type hash id getattr hasattr dir help super")


def calls_only(every: Sequence[ast.stmt], setup: Sequence[ast.stmt], names: set[str]) -> bool:
    """Returns whether tests are of that kind, given the definitions that come with them and the solution's globals."""
    return _Reader(every, setup, names).plain()


class _Reader:
    def __init__(self, every: Sequence[ast.stmt], setup: Sequence[ast.stmt], names: set[str]) -> None:
        self._every, self._setup, self._names = every, setup, names
        self._parents = {id(child): node for node in find(every, ast.AST) for child in ast.iter_child_nodes(node)}
        self._functions = {*names, "candidate"} - {"Solution"}
        self._classes = {node.name for node in find([*every, *setup], ast.ClassDef)}
        self._helpers = {node.name: node for node in find([*every, *setup], ast.FunctionDef)}
        self._asking = {name for name, node in self._helpers.items() if _asks_its_arguments(node)}
        self._calls = [node for node in find(every, ast.Call) if self._is_of_solution(node)]
        self._bindings = bindings(every)
        self._answers: set[str] = set()
        self._mentioned = set(names_in(every))

    def plain(self) -> bool:
        """Returns whether all that the tests do with the solution is of that kind."""
        if any(name[:1].isupper() and name != "Solution" and not self._is_function(name) for name in self._names):
            return False
        if not all(map(self._is_allowed, find(self._every, ast.AST))):
            return False
        mentioned = [node for node in find(self._every, ast.Name) if node.id in self._functions]
        if not self._calls and not any(map(self._is_mapped, mentioned)):
            return False
        if not all(map(self._is_called, mentioned)):
            return False
        self._answers = derived_names(self._every, self._calls)
        named = [node for node in find(self._every, ast.Name) if node.id in self._answers]
        uses = [(use, self._use(use)) for use in (*self._calls, *(n for n in named if isinstance(n.ctx, ast.Load)))]
        proven = {name for use, how in uses if how == "data" for name in self._functions_of(use)}
        if any(how == "object" or (how != "kept" and self._functions_of(use) - proven) for use, how in uses):
            return False
        return all(map(GivenData([*self._every, *self._setup], self._functions).is_given, self._calls))

    def _is_function(self, name: str) -> bool:
        """Whether a capitalised name is no class: none is named so, and each call is to equal plain data."""
        calls = [call for call in self._calls if called_by_name(call) == name]
        return "_" in name and bool(calls) and all(map(self._is_to_equal_data, calls))

    def _is_to_equal_data(self, call: ast.Call) -> bool:
        compare = self._parents.get(id(call))
        if not isinstance(compare, ast.Compare) or not all(isinstance(each, ast.Eq) for each in compare.ops):
            return False
        return all(side is call or literal(side) is not None for side in (compare.left, *compare.comparators))

    def _is_allowed(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Import):
            return all(self._is_allowed_module(alias) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            own = node.module in SOLUTION_MODULES and not any(alias.asname or alias.name == "*" for alias in node.names)
            known = (node.module or "").partition(".")[0] in _MODULES
            return own or (known and not any(alias.name in _ELSEWHERE for alias in node.names))
        if isinstance(node, ast.Name):
            return node.id not in _ELSEWHERE | self._classes and not _is_foreign_error(node.id)
        if isinstance(node, ast.Attribute):
            foreign = node.attr in _ELSEWHERE or node.attr.startswith("__") or _is_foreign_error(node.attr)
            return isinstance(node.ctx, ast.Load) and not foreign
        if isinstance(node, ast.Compare) and any(isinstance(each, _SIDE_BY_SIDE) for each in node.ops):
            sides = [node.left, *node.comparators]
            return any(isinstance(side, ast.Constant) or ast.unparse(side) in _KINDS for side in sides)
        return not isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.Yield | ast.YieldFrom | ast.Global)

    def _is_allowed_module(self, alias: ast.alias) -> bool:
        """Whether a module only computes values, or is of the standard library and not used."""
        module = alias.name.partition(".")[0]
        unused = (alias.asname or module) not in self._mentioned and module in sys.stdlib_module_names
        return module in _MODULES or unused

    def _is_of_solution(self, node: ast.AST) -> bool:
        return called_by_name(node) in self._functions

    def _is_called(self, node: ast.Name) -> bool:
        """Whether a mention of the solution is one of its calls, or hands the function to `check` or `map`."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Call):
            return parent.func is node or called_by_name(parent) in ("check", "map")
        names_it = isinstance(parent, ast.Assign) and ast.unparse(parent.targets[0]) == "candidate"
        return names_it or (isinstance(node.ctx, ast.Store) and node.id == "candidate")

    def _is_mapped(self, node: ast.Name) -> bool:
        parent = self._parents.get(id(node))
        return isinstance(parent, ast.Call) and called_by_name(parent) == "map" and parent.args[:1] == [node]

    def _assigned(self, call: ast.Call) -> set[str]:
        """The names of the answer to a call, or of its items."""
        return {name for targets, value, _ in self._bindings if value is call for name in names_in(targets)}

    def _functions_of(self, use: ast.expr) -> set[str]:
        if isinstance(use, ast.Call):
            return {called_by_name(use)} - {""}
        name = getattr(use, "id", "")
        return {called_by_name(call) for call in self._calls if name in self._assigned(call)}

    def _use(self, node: ast.expr) -> str:
        """How an answer is used: "data" (compared with data, indexed, counted, iterated), "open", "object" or "kept".

        "open" is as data and other things can be, "object" as no data is, "kept" not yet: it gets a name, or nobody
        looks.
        """
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Assign | ast.Expr):
            return "kept"
        if isinstance(parent, ast.Attribute):
            around = self._parents.get(id(parent))
            is_called = isinstance(around, ast.Call) and around.func is parent
            return "open" if parent.attr in (_METHODS if is_called else _PARTS) else "object"
        if isinstance(parent, ast.FormattedValue):
            return "data" if parent.format_spec else "open"
        if isinstance(parent, ast.FunctionDef | ast.ClassDef | ast.withitem | ast.Await | ast.Raise | ast.Delete):
            return "object"
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return "data" if isinstance(parent.ctx, ast.Load) and self._use(parent) != "object" else "object"
        if isinstance(parent, ast.Call):
            name = called_by_name(parent)
            kinds = name in ("isinstance", "issubclass") and not set(names_in(parent.args[1:])) <= _KINDS
            if parent.func is node or name in _NO_VALUES or kinds or name in self._asking - {"check"}:
                return "object"
            if any(map(_asks_its_arguments, find([*parent.args, *parent.keywords], ast.Lambda))):
                return "object"
            return "open" if name in self._functions | _TEXTS | {"check"} else "data"
        if isinstance(parent, ast.Compare):
            others = [side for side in (parent.left, *parent.comparators) if side is not node]
            side_by_side = any(isinstance(operator, _SIDE_BY_SIDE) for operator in parent.ops)
            if side_by_side and not all(isinstance(side, ast.Constant) for side in others):
                return "object"
            return "open" if any(self._is_answer(side) or ast.unparse(side) == "None" for side in others) else "data"
        if isinstance(parent, ast.BinOp):
            above: ast.AST | None = parent
            while isinstance(above, ast.BinOp):
                above = self._parents.get(id(above))
            sides = [above.left, *above.comparators] if isinstance(above, ast.Compare) else []
            return "object" if sides and all(map(self._is_answer, sides)) else "data"
        return "data"

    def _is_answer(self, node: ast.expr) -> bool:
        """Whether an expression is made of answers of the solution and of nothing that is surely data."""
        if isinstance(node, ast.BinOp):
            return self._is_answer(node.left) or self._is_answer(node.right)
        return self._is_of_solution(node) or (isinstance(node, ast.Name) and node.id in self._answers)


def _asks_its_arguments(node: ast.FunctionDef | ast.Lambda) -> bool:
    """Whether a function of the tests uses attributes of its arguments that plain data lacks."""
    local = {each.arg for each in find(node, ast.arg)} | set(names_in(node, ast.Store))
    called = {id(call.func) for call in find(node, ast.Call) if isinstance(node, ast.Lambda)}
    known = [each for each in find(node, ast.Attribute) if id(each) in called and each.attr in _METHODS]
    owners = [each.value for each in find(node, ast.Attribute) if each not in known]
    return any(not isinstance(owner, ast.Name) or owner.id in local for owner in owners)


def _is_foreign_error(name: str) -> bool:
    """Whether a name is that of an exception that is not built in, and so does not cross."""
    return name.endswith(("Error", "Exception", "Warning")) and not hasattr(builtins, name)
