"""Decides whether tests only call functions with plain data and use what comes back as plain data.

Where that is not sure the answer is no, and the tests run in one process with the solution.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence

from grpo.rewards.code.guest.customs import SOLUTION_MODULES


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MODULES = _words(
    "math cmath copy re itertools functools collections string typing json fractions operator heapq bisect"
    " statistics random datetime numpy pytest __future__ decimal"
)
# What changes the solution's surroundings, or looks at more than values.
_ELSEWHERE = _words(
    "seed setstate getcontext setcontext localcontext setrecursionlimit stdout stdin stderr environ settrace open"
    " input eval exec compile globals locals vars breakpoint __import__ redirect_stdout capsys print isgenerator"
    " iscoroutinefunction warns deprecated_call catch_warnings simplefilter GeneratorType StopIteration"
    " GeneratorExit StopAsyncIteration"
)
_SIDE_BY_SIDE = (ast.Is, ast.IsNot)
_KINDS = _words(
    "int float str bytes bool complex list tuple dict set frozenset Iterable Sequence Mapping Sized Container"
    " Hashable Collection Number Integral Real object NoneType"
)
_METHODS = frozenset(
    name for kind in (str, bytes, tuple, int, float, complex) for name in dir(kind) if not name.startswith("_")
) | frozenset(("keys", "values", "items", "get"))
_CLASSES_OF_DATA = frozenset(("Decimal", "Fraction", "Counter", "OrderedDict"))
_NO_VALUES = _words("islice takewhile dropwhile next iter callable type hash id getattr hasattr dir help super")


def calls_only(every: Sequence[ast.stmt], setup: Sequence[ast.stmt], names: set[str]) -> bool:
    """Returns whether tests are of that kind.

    Args:
        every: the tests.
        setup: the definitions that come with them.
        names: the globals that the solution must define.
    """
    return _Reader(every, setup, names).plain()


class _Reader:
    def __init__(self, every: Sequence[ast.stmt], setup: Sequence[ast.stmt], names: set[str]) -> None:
        self._every = every
        self._nodes = [node for statement in every for node in ast.walk(statement)]
        self._parents = {id(child): node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._functions = {*names, "candidate"} - {"Solution"}
        defined = [node for statement in (*every, *setup) for node in ast.walk(statement)]
        self._defined = defined
        self._classes = {node.name for node in defined if isinstance(node, ast.ClassDef)}
        self._helpers = {node.name for node in defined if isinstance(node, ast.FunctionDef)}
        self._names = names
        self._answers: set[str] = set()
        self._iterators: set[str] = set()
        self._known: set[str] = set()

    def plain(self) -> bool:
        """Returns whether all that the tests do with the solution is of that kind."""
        if any(name[:1].isupper() and name != "Solution" for name in self._names):
            return False
        if not all(map(self._is_allowed, self._nodes)):
            return False
        calls = [node for node in self._nodes if isinstance(node, ast.Call) and self._is_of_solution(node)]
        mapped = {node.id for node in self._nodes if isinstance(node, ast.Name) and self._is_mapped(node)}
        if not (calls or mapped) or not self._only_called(calls):
            return False
        self._answers = {name for call in calls for name in self._assigned(call)}
        self._iterators = {
            name
            for node in self._nodes
            if isinstance(node, ast.Call) and _makes_iterator(node)
            for name in self._assigned(node)
        }
        self._known = {
            name for use in self._uses(calls) if self._is_surely_data(use) for name in self._functions_of(use)
        }
        used = [use for use in self._uses(calls) if not isinstance(self._parents.get(id(use)), ast.Expr | ast.Assign)]
        if {name for use in used for name in self._functions_of(use)} - self._known:
            return False
        return all(map(self._is_given_data, calls)) and all(map(self._is_used_as_data, self._uses(calls)))

    def _is_allowed(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
            return all(name in _MODULES for name in names)
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").partition(".")[0]
            own = node.module in SOLUTION_MODULES and not any(alias.asname or alias.name == "*" for alias in node.names)
            return own or (module in _MODULES and not any(alias.name in _ELSEWHERE for alias in node.names))
        if isinstance(node, ast.Name):
            return node.id not in _ELSEWHERE | self._classes and not _is_foreign_error(node.id)
        if isinstance(node, ast.Attribute):
            foreign = node.attr in _ELSEWHERE or node.attr.startswith("__") or _is_foreign_error(node.attr)
            return isinstance(node.ctx, ast.Load) and not foreign
        if isinstance(node, ast.Compare) and any(isinstance(each, _SIDE_BY_SIDE) for each in node.ops):
            sides = [node.left, *node.comparators]
            return any(isinstance(side, ast.Constant) or ast.unparse(side) in _KINDS for side in sides)
        return not isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.Yield | ast.YieldFrom | ast.Global)

    def _is_of_solution(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Name) and node.func.id in self._functions

    def _only_called(self, calls: Iterable[ast.Call]) -> bool:
        """Returns whether every mention of the solution is one of its calls, or hands the function to `check`."""
        called = {id(call.func) for call in calls}
        for node in self._nodes:
            if isinstance(node, ast.Name) and node.id in self._functions and id(node) not in called:
                parent = self._parents.get(id(node))
                hands = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "check"
                stands_in = isinstance(parent, ast.Assign) and ast.unparse(parent.targets[0]) == "candidate"
                mapped = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "map"
                if (
                    not hands
                    and not mapped
                    and not stands_in
                    and not (isinstance(node.ctx, ast.Store) and node.id == "candidate")
                ):
                    return False
        return True

    def _is_mapped(self, node: ast.Name) -> bool:
        """Returns whether a function of the solution is what `map` calls."""
        parent = self._parents.get(id(node))
        maps = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "map"
        return maps and node.id in self._functions and parent.args[:1] == [node]  # type: ignore[union-attr]

    def _is_given_data(self, call: ast.Call) -> bool:
        """Returns whether the arguments are surely plain data."""
        for part in (*call.args, *(keyword.value for keyword in call.keywords)):
            for node in ast.walk(part):
                if isinstance(node, ast.Lambda | ast.GeneratorExp):
                    return False
                if isinstance(node, ast.Call) and (not self._gives_data(node.func) or _makes_iterator(node)):
                    return False
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not self._is_datum(node):
                    return False
        return True

    def _gives_data(self, function: ast.expr) -> bool:
        """Returns whether what a function returns is plain data: all do but classes, apart from those of data."""
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name in _CLASSES_OF_DATA or not name[:1].isupper()

    def _is_datum(self, node: ast.Name) -> bool:
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Call) and parent.func is node:
            return node.id not in self._classes and (node.id in self._functions or node.id not in ("iter", "open"))
        if isinstance(parent, ast.Attribute):
            return node.id not in self._classes
        others = self._classes | self._helpers | self._functions | self._iterators
        return node.id not in others and not hasattr(builtins, node.id)

    def _assigned(self, call: ast.Call) -> set[str]:
        """Returns the names that get an answer of the solution."""
        node: ast.AST = call
        while not isinstance(node, ast.stmt):
            parent = self._parents.get(id(node))
            if parent is None:
                break
            node = parent
        if isinstance(node, ast.Assign):
            return {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if isinstance(node, ast.For) and any(inner is call for inner in ast.walk(node.iter)):
            return {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        if isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Name):
            return {node.target.id}
        return set()

    def _uses(self, calls: Iterable[ast.Call]) -> list[ast.expr]:
        named = [node for node in self._nodes if isinstance(node, ast.Name) and node.id in self._answers]
        return [*calls, *(node for node in named if isinstance(node.ctx, ast.Load))]

    def _functions_of(self, use: ast.expr) -> set[str]:
        """Returns the functions of which an expression may be an answer."""
        if isinstance(use, ast.Call):
            return {use.func.id} if isinstance(use.func, ast.Name) else set()
        calls = (node for node in self._nodes if isinstance(node, ast.Call) and self._is_of_solution(node))
        name = getattr(use, "id", "")
        return {call.func.id for call in calls if isinstance(call.func, ast.Name) and name in self._assigned(call)}

    def _is_surely_data(self, node: ast.expr) -> bool:
        """Returns whether an answer is used as only data can be: compared with data, indexed, counted, iterated."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Compare):
            others = [side for side in (parent.left, *parent.comparators) if side is not node]
            return not any(self._is_answer(side) or _is_none(side) for side in others)
        if isinstance(parent, ast.Call):
            named = parent.func.id if isinstance(parent.func, ast.Name) else getattr(parent.func, "attr", "")
            if named in self._helpers - {"check"}:
                return not self._asks_its_arguments(named)
            return named not in self._functions | {"check"}
        return not isinstance(parent, ast.Assign | ast.Expr | ast.Attribute)

    def _is_used_as_data(self, node: ast.expr) -> bool:
        """Returns whether nothing is asked of an answer that data would not be asked."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Attribute) and parent.attr in _METHODS and self._functions_of(node) <= self._known:
            return True
        if isinstance(
            parent, ast.FunctionDef | ast.ClassDef | ast.Attribute | ast.withitem | ast.Await | ast.Raise | ast.Delete
        ):
            return False
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return isinstance(parent.ctx, ast.Load) and self._is_used_as_data(parent)
        if isinstance(parent, ast.Call) and parent.func is node:
            return False
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            if parent.func.id in _NO_VALUES:
                return False
            if parent.func.id in self._helpers - {"check"}:
                return not self._asks_its_arguments(parent.func.id)
            if parent.func.id in ("isinstance", "issubclass"):
                kinds = {inner.id for inner in ast.walk(parent.args[1]) if isinstance(inner, ast.Name)}
                return len(parent.args) == 2 and kinds <= _KINDS
        if isinstance(parent, ast.Compare):
            sides = [parent.left, *parent.comparators]
            others = [side for side in sides if side is not node]
            if any(isinstance(operator, _SIDE_BY_SIDE) for operator in parent.ops):
                return all(isinstance(side, ast.Constant) for side in others)
            return not all(self._is_answer(side) for side in others) or self._functions_of(node) <= self._known
        if isinstance(parent, ast.BinOp):
            top: ast.AST = parent
            while isinstance(self._parents.get(id(top)), ast.BinOp):
                top = self._parents[id(top)]
            around = self._parents.get(id(top))
            bare = isinstance(around, ast.Compare) and all(
                self._is_answer(side) for side in (around.left, *around.comparators)
            )
            return not bare
        return True

    def _asks_its_arguments(self, name: str) -> bool:
        """Returns whether a function of the tests asks its arguments for attributes, as those of no plain data."""
        for node in self._defined:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                inside = list(ast.walk(node))
                local = {inner.arg for inner in inside if isinstance(inner, ast.arg)}
                local |= {
                    inner.id for inner in inside if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
                }
                owners = [inner.value for inner in inside if isinstance(inner, ast.Attribute)]
                return any(not isinstance(owner, ast.Name) or owner.id in local for owner in owners)
        return False

    def _is_answer(self, node: ast.expr) -> bool:
        """Returns whether an expression is made of answers of the solution and of nothing that is surely data."""
        if isinstance(node, ast.Call):
            return self._is_of_solution(node)
        if isinstance(node, ast.BinOp):
            return self._is_answer(node.left) or self._is_answer(node.right)
        return isinstance(node, ast.Name) and node.id in self._answers


def _makes_iterator(node: ast.Call) -> bool:
    """Returns whether a call makes something that can be read once only."""
    if isinstance(node.func, ast.Attribute):
        return isinstance(node.func.value, ast.Name) and node.func.value.id == "itertools"
    return getattr(node.func, "id", "") in ("iter", "map", "filter", "zip", "enumerate", "reversed", "cycle", "count")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_foreign_error(name: str) -> bool:
    """Returns whether a name is that of an exception that is not built in, and so does not cross."""
    return name.endswith(("Error", "Exception", "Warning")) and not hasattr(builtins, name)
