"""Finds tests whose calls of the solution all stand in them, and that look at the answers as plain data alone.

`assert f(2) == 4`, `x = f(3)`, then `assert sorted(x)[0] > 1`, a loop over values that stand there, `pytest.raises`. So
all calls can be asked first, and what the tests say of the answers is decided later, where nothing of the solution is.
It is decided by a few functions and operators that take no time and no room, whatever the answers are.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from grpo.rewards.code.guest.plain import decode
from grpo.rewards.code.guest.units import same
from grpo.rewards.code.syntax import called, called_by_name, find, literal, mentions, names_in, words

_BUILTINS = words(
    "abs all any bool dict float frozenset int isinstance len list max min round set sorted str sum tuple type zip"
)
FUNCTIONS: dict[str, Any] = {name: getattr(builtins, name) for name in _BUILTINS}
"""What a check may call, by the name that it has there."""
FUNCTIONS |= {"isclose": math.isclose, "__near__": same}
_ORDERING = words("list tuple str sum zip")
_METHODS = words(
    "lower upper title strip lstrip rstrip split startswith endswith isdigit isalpha isalnum isupper islower count"
    " index find keys values items get"
)
_PLAIN = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Starred, ast.Subscript, ast.Slice, ast.keyword),
    *(ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.expr_context),
)
_CHEAP = (ast.Add, ast.Sub, ast.Div, ast.FloorDiv)
_MOST_ITEMS, _MOST_CHECKS, _LARGEST = 100, 500, 2000


@dataclass(frozen=True, slots=True)
class KnownUnit:
    """A unit of which all calls are known; values are as `encode` writes them.

    Attributes:
        calls: the function, a list of arguments and a dictionary of keyword arguments of each, in their order.
        check: what the tests say of the answers, where `__answer__(n)` is that of a call, and `__raised__(n, kind)`
            is whether the call raised such an exception.
        size: the length of its source.
        ordering: what it says may depend on the order of a set, which is another one in another process.
    """

    calls: tuple[tuple[str, Any, Any], ...]
    check: CodeType
    size: int
    ordering: bool


class _Unknown(Exception):
    """The unit does what is neither known nor cheap."""


class KnownReader(ast.NodeTransformer):
    """Reads units in their order and replaces calls of the solution by their answers.

    Args:
        names: the functions of the solution; where there is one, `candidate` is that.
        constants: a value that has a name is the same after it was given to the solution.
    """

    def __init__(self, names: Collection[str], *, constants: bool) -> None:
        self._names, self._constants = names, constants
        self._calls: list[tuple[str, Any, Any]] = []
        self._values: dict[str, ast.expr] = {}
        self._answers: set[str] = set()
        self._checked = 0
        self._ordering = self._sets = False

    def unit(self, body: Sequence[ast.stmt]) -> KnownUnit | None:
        """Returns a unit of which all calls are known, None for any other."""
        self._calls, self._checked = [], 0
        try:
            check = ast.fix_missing_locations(ast.Module(self._block(copy.deepcopy(body)), []))
        except _Unknown:
            return None
        self._ordering = self._ordering or mentions(check, _ORDERING)
        self._sets = self._sets or mentions(check, ("set", "frozenset")) or bool(find(check, ast.Set))
        if self._ordering and self._sets:
            return None
        code = compile(check, "<tests>", "exec", optimize=0)
        return KnownUnit(tuple(self._calls), code, len(ast.unparse(check)), self._ordering)

    def beside(self, node: ast.stmt) -> None:
        """Notes what a statement between the units does to names."""
        for name in names_in(node):
            self._values.pop(name, None)
        if isinstance(node, ast.Assign) and literal(node.value) is not None:
            with contextlib.suppress(_Unknown):
                self._checks(node)

    def _block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Returns the checks of statements."""
        return [check for statement in body for check in self._checks(statement)]

    def _checks(self, node: ast.stmt) -> list[ast.stmt]:
        self._checked += 1
        match node:
            case _ if self._checked > _MOST_CHECKS:
                raise _Unknown
            case ast.Expr(ast.Constant()):
                return []
            case ast.Assert():
                return [ast.Assert(self.visit(node.test), None)]
            case ast.Assign([ast.Name(name)], value):
                return self._named(name, self.visit(value))
            case ast.For(target, values, body, []):
                each = [(self._bound(target, item), self._block(copy.deepcopy(body))) for item in self._items(values)]
                return [check for bound, checks in each for check in (*bound, *checks)]
            case ast.With([ast.withitem(ast.Call(_, [ast.Name(kind)], []) as context, None)], [ast.Expr(call)]):
                asked = self.visit(call)
                if called(context) == "raises" and hasattr(builtins, kind) and called(asked) == "__answer__":
                    raised = ast.Call(ast.Name("__raised__", ast.Load()), [*asked.args, ast.Constant(kind)], [])
                    return [ast.Assert(raised, None)]
        raise _Unknown

    def _named(self, name: str, value: ast.expr) -> list[ast.stmt]:
        """Gives a value a name; values that grow from name to name are left out."""
        if self._answers & set(names_in(value)) or len(list(ast.walk(value))) > _LARGEST:
            raise _Unknown
        if literal(value) is None:
            self._answers.add(name)
            self._values.pop(name, None)
            return [ast.Assign([ast.Name(name, ast.Store())], value)]
        if not self._constants and find(value, ast.List, ast.Dict, ast.Set, ast.BinOp):
            raise _Unknown
        self._values[name] = value
        return []

    def _bound(self, target: ast.expr, item: ast.expr) -> list[ast.stmt]:
        """Gives the targets of a loop their values."""
        if isinstance(target, ast.Name):
            return self._named(target.id, self.visit(item))
        match target, item:
            case ast.Tuple(targets), ast.Tuple(items) | ast.List(items) if len(targets) == len(items):
                pairs = zip(targets, items, strict=True)
                return [check for target, item in pairs for check in self._bound(target, item)]
        raise _Unknown

    def _items(self, node: ast.expr) -> list[ast.expr]:
        """Returns the items over which a loop goes."""
        if isinstance(node, ast.Call) and called_by_name(node) == "range":
            ends = literal(ast.List(node.args, ast.Load()))
            if ends is None or not all(type(each) is int for each in decode(ends[0])) or 0 in decode(ends[0])[2:]:
                raise _Unknown
            node = ast.List([ast.Constant(number) for number in range(*decode(ends[0]))[: _MOST_ITEMS + 1]])
        elif isinstance(node, ast.Name):
            node = self.visit_Name(node)
        if not isinstance(node, ast.List | ast.Tuple) or not 0 < len(node.elts) <= _MOST_ITEMS:
            raise _Unknown
        return node.elts

    def generic_visit(self, node: ast.AST) -> Any:
        if not isinstance(node, _PLAIN):
            raise _Unknown
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._values:
            return copy.deepcopy(self._values[node.id])
        if node.id in self._answers or node.id in _BUILTINS - {*self._names}:
            return node
        raise _Unknown

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left, node.right = self.visit(node.left), self.visit(node.right)
        if not isinstance(node.op, _CHEAP) and literal(node) is None:
            raise _Unknown
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = called_by_name(node)
        name = next(iter(self._names)) if name == "candidate" and len(self._names) == 1 else name
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) != "math.isclose":
            if node.func.attr not in _METHODS:
                raise _Unknown
            node.func.value = self.visit(node.func.value)
        elif name not in self._names and called(node) not in FUNCTIONS:
            raise _Unknown
        node.args, node.keywords = [*map(self.visit, node.args)], [*map(self.visit, node.keywords)]
        if name in self._names:
            return self._asked(name, node)
        if called(node) == "round" and (find(node, ast.Starred) or not all(map(literal, node.args[1:]))):
            raise _Unknown
        if called(node) == "str" and any(called(each) == "str" for each in find(node.args, ast.Call)):
            raise _Unknown  # texts of texts grow
        if called(node) == "isclose":
            node.func = ast.Name("isclose", ast.Load())
        return node

    def _asked(self, name: str, node: ast.Call) -> ast.expr:
        """Notes a call of the solution; returns its answer."""
        keys: list[ast.expr | None] = [ast.Constant(each.arg) if each.arg else None for each in node.keywords]
        args = literal(ast.List(node.args, ast.Load()))
        named = literal(ast.Dict(keys, [each.value for each in node.keywords]))
        if args is None or named is None:
            raise _Unknown
        self._calls.append((name, args[0], named[0]))
        return ast.Call(ast.Name("__answer__", ast.Load()), [ast.Constant(len(self._calls) - 1)], [])
