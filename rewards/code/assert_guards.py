"""Guards around what tests assert: parsed tests in, the same with blocks that note what did not complete out.

Theory of operation. A failure may leave a block or a function of the tests through an object of the solution: the
`__exit__` of a `with`, a callback, a decorator. That object may not make it undone. So each assertion stands in a
`with` block of its own, and what leads to the last assertion of a `with` block or of a function in another: an
exception that leaves either is remembered as a failure, unless a `raise` of the tests made it. What the tests catch
themselves never gets to anybody who asks. `assert False` is not meant to be reached and is waited for by nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from grpo.rewards.code.assert_names import UNITS
from grpo.rewards.code.assert_pinned import Pinned

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Holder = TypeVar("_Holder", ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef)


def guarded(
    body: list[ast.stmt], every: Sequence[ast.stmt], asserting: set[str], names: Collection[str] = ()
) -> ast.Module:
    """Returns tests with their guards.

    Args:
        body: the tests, in units.
        every: the tests as they came.
        asserting: the functions of the tests that assert.
        names: the globals that the solution defines.
    """
    guarding = _Guarded(every, asserting, names)
    module = ast.Module([guarding.visit(node) for node in body], [])
    return ast.fix_missing_locations(module)


class _Guarded(ast.NodeTransformer):
    """Guards assertions, and asks `Units` where identity or a class is asked for.

    See `guest.remote.Remote`: `f(x) is x` and `type(f(x)) is C` compare what the tests have with what the solution has.
    """

    def __init__(self, every: Sequence[ast.stmt], asserting: set[str], names: Collection[str]) -> None:
        nodes = [node for statement in every for node in ast.walk(statement)]
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self._has_type = "type" not in bound | {node.arg for node in nodes if isinstance(node, ast.arg)}
        self._asserting = asserting
        self._names = names
        self._pinned = Pinned(every, names)

    def visit_Assert(self, node: ast.Assert) -> ast.With:
        pinned = self._pinned(node)
        self.generic_visit(node)
        node.test = _in_steps(node.test)
        return _with_guard("pinned" if pinned else "assertion", [node])

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        asserts, pinned = _is_assertion(node), self._pinned(node)
        self.generic_visit(node)
        return _with_guard("pinned" if pinned else "assertion", [node]) if asserts else node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        self.generic_visit(node)
        if node.exc is not None:
            node.exc = _of_units("deliberate", [node.exc])
        return node

    def visit_With(self, node: ast.With) -> ast.With:
        return self._holding(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AsyncWith:
        return self._holding(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return self._holding(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return self._holding(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = [node.left, node.comparators[0]]
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        if any(isinstance(side, ast.Constant) for side in sides):
            return node
        same = _of_units("identical", sides)
        return same if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), same)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        plain = isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords
        if plain and ast.unparse(node.func) == "vars":
            return ast.Attribute(node.args[0], "__dict__", ast.Load())
        if not plain or not self._has_type or ast.unparse(node.func) != "type":
            return node
        return node if isinstance(node.args[0], ast.Starred) else _of_units("type_of", node.args)

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.MatchClass:
        self.generic_visit(node)
        if isinstance(node.cls, ast.Name) and node.cls.id in self._names:
            node.cls = ast.Attribute(ast.Attribute(ast.Name(UNITS, ast.Load()), "patterns", ast.Load()), node.cls.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        asked = node.attr == "__class__" and isinstance(node.ctx, ast.Load)
        return _of_units("type_of", [node.value]) if asked else node

    def _holding(self, node: _Holder) -> _Holder:
        """Guards what a block or function does up to the last assertion in it."""
        places: list[int] = [place for place, inner in enumerate(node.body) if self._asserts(inner)]
        self.generic_visit(node)
        if places and not _is_unit(node):
            end: int = places[-1] + 1
            node.body = [_with_guard("held", node.body[:end]), *node.body[end:]]
        return node

    def _asserts(self, statement: ast.stmt) -> bool:
        """Returns whether a statement holds an assertion that something depends on, or calls a function that does."""
        for node in _inside(statement):
            if isinstance(node, ast.Assert) and any(isinstance(inner, ast.Name) for inner in ast.walk(node.test)):
                return True
            if isinstance(node, ast.stmt) and _is_assertion(node):
                return True
            if isinstance(node, ast.withitem) and _expects(node.context_expr):
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._asserting:
                return True
        return False


def _inside(statement: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that run when a statement does: not those of the functions and classes that it defines."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return
    yield statement
    for node in ast.iter_child_nodes(statement):
        yield from _inside(node)


def _is_assertion(node: ast.stmt) -> bool:
    """Returns whether a statement calls an assertion of a test case."""
    method = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr.startswith("assert")


def _expects(node: ast.expr) -> bool:
    """Returns whether the context of a `with` block expects an exception, which is an assertion too."""
    name = node.func if isinstance(node, ast.Call) else None
    called = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
    return called in ("raises", "warns") or called.startswith("assert")


def _is_unit(node: ast.AST) -> bool:
    """Returns whether a `with` block is a unit, through which nothing gets to the solution."""
    call = node.items[0].context_expr if isinstance(node, ast.With) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == UNITS


def _in_steps(node: ast.expr) -> ast.expr:
    """Returns what is asserted, so that what one step changes shows in the next: `f(xs) is None and xs == [1]`."""
    if isinstance(node, ast.BoolOp):
        node.values = [_of_units("step", [_in_steps(value)]) for value in node.values]
    elif isinstance(node, ast.UnaryOp):
        node.operand = _in_steps(node.operand)
    elif isinstance(node, ast.Compare):
        node.left = _in_steps(node.left)
    elif isinstance(node, ast.Tuple | ast.List) and not any(isinstance(item, ast.Starred) for item in node.elts):
        node.elts = [_of_units("step", [item]) if isinstance(item, ast.Call) else item for item in node.elts]
    return node


def _of_units(method: str, given: list[ast.expr]) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name(UNITS, ast.Load()), method, ast.Load()), given, [])


def _with_guard(name: str, body: list[ast.stmt]) -> ast.With:
    guard = ast.Attribute(ast.Name(UNITS, ast.Load()), name, ast.Load())
    return ast.With([ast.withitem(guard)], body)
