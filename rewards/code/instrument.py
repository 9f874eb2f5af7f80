"""Prepares parsed tests to be run unit by unit: what they compare is asked of the judge, and each unit says how it ended.

Expected values that stand in an assertion are taken out where the solution runs in the same process (`split=False`).
See `guest.units` for the names that the prepared source calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo.rewards.code.guest.plain import NotPlain, encode

_EQUAL = frozenset(
    "assertEqual assertEquals assertListEqual assertDictEqual assertTupleEqual assertSetEqual assertCountEqual".split()
)
_UNEQUAL = frozenset(("assertNotEqual", "assertIsNot"))
_CONVERSIONS = frozenset("int float complex str repr bytes len bool abs round hash".split())
_LARGEST_BASE, _LARGEST_FACTOR = 200, 10_000


@dataclass(slots=True)
class Prepared:
    """What was taken out of tests.

    Attributes:
        literals: the expected values, as `encode` writes them.
        required: for each unit, those that it asks for whenever it runs to its end.
        reaching: the units all of whose assertions stand where they may not be reached.
        several: expected values of one expression for which the tests expect others too.
    """

    literals: list[Any] = field(default_factory=list)
    required: dict[int, list[int]] = field(default_factory=dict)
    reaching: list[int] = field(default_factory=list)
    several: list[int] = field(default_factory=list)


class Instrument(ast.NodeTransformer):
    """Rewrites assertions, and calls whose answers may not change.

    Args:
        names: the globals of the solution, and what stands for them.
        every: the tests as they came.
        split: the solution runs elsewhere, and values may stay where they are.
        sure: no test is skipped or may fail.
    """

    def __init__(self, names: Collection[str], every: Sequence[ast.stmt], *, split: bool, sure: bool = True) -> None:
        self.prepared = Prepared()
        self._none_skipped = sure
        self._split = split
        self._names = frozenset(names)
        self._unit = -1
        self._sure = False
        self._assertions: list[bool] = []
        self._methods = _lone_methods(every, self._names)
        self._compared: dict[str, list[int]] = {}
        self._changing = self._caught = False
        self.units = 0

    def finished(self) -> Prepared:
        """Returns what was taken out, when all is rewritten."""
        wires = self.prepared.literals
        for places in self._compared.values():
            if len({repr(wires[place]) for place in places}) > 1:
                self.prepared.several.extend(places)
        return self.prepared

    def next_unit(self) -> int:
        """Returns the number of another unit."""
        self.units += 1
        return self.units - 1

    def unit(self, number: int, body: list[ast.stmt], *, sure: bool = True) -> list[ast.stmt]:
        """Returns the statements of a unit, rewritten.

        Args:
            number: the unit.
            body: its statements.
            sure: they run whenever the unit passes.
        """
        outer = self._unit, self._assertions, self._changing
        self._unit, self._assertions = number, []
        self._changing = any(_asks_for_change(node) for statement in body for node in ast.walk(statement))
        done = []
        for statement in body:
            self._sure = sure and self._none_skipped and isinstance(statement, ast.Assert | ast.Expr)
            done.append(self.visit(statement))
        if self._assertions and not any(self._assertions):
            self.prepared.reaching.append(number)
        self._unit, self._assertions, self._changing = outer
        return done

    def visit_Try(self, node: ast.Try) -> ast.Try:
        outer, self._caught = self._caught, True
        self.generic_visit(node)
        self._caught = outer
        return node

    def visit_With(self, node: ast.With) -> ast.With:
        expects = any(_name_of(item.context_expr).startswith(("raises", "assertRaises", "warns")) for item in node.items)
        if expects:
            self._assertions.append(True)
            node.items = [self.visit(item) for item in node.items]
            return node
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        sure, self._sure = self._sure, False
        if not (isinstance(node.test, ast.Constant) and not node.test.value):
            self._assertions.append(sure)
        self._sure = sure
        node.test = self._asserted(node.test)
        self._sure = False
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            self.generic_visit(node)
            return node
        method = call.func.attr
        if method.startswith("assert"):
            self._assertions.append(self._sure)
        if method in _EQUAL - {"assertCountEqual"} and len(call.args) >= 2 and not self._split:
            asked = self._equal(call.args[0], call.args[1])
            node.value = ast.Call(ast.Attribute(call.func.value, "assertTrue", ast.Load()), [asked], [])
            return node
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if _name_of(node).startswith(("assert", "raises", "warns")) and node.args:
            node.args[0] = ast.Call(_name("__true__"), [node.args[0]], [])
        if self._unit < 0 or self._changing or not (node.args or node.keywords):
            return node
        if not self._split and isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS and len(node.args) == 1:
            return ast.Call(_name("__twice__"), [node.func, *node.args], node.keywords)
        asked = isinstance(node.func, ast.Name) and node.func.id in self._names and not _is_class(node.func.id)
        function = isinstance(node.func, ast.Attribute) and (
            ast.unparse(node.func) in self._methods or self._is_made_anew(node.func.value)
        )
        if not asked and not function:
            return node
        return ast.Call(_name("__ask__"), [node.func, *node.args], node.keywords)

    def _is_made_anew(self, node: ast.expr) -> bool:
        """Returns whether an object of the solution is made without arguments, for the one call: `Solution().f(3)`."""
        made = isinstance(node, ast.Call) and not node.args and not node.keywords and isinstance(node.func, ast.Name)
        return made and node.func.id in self._names  # type: ignore[attr-defined]

    def _asserted(self, test: ast.expr) -> ast.expr:
        """Returns the expression of an assertion, which the judge takes part in deciding."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test.values = [self._asserted(value) for value in test.values]
            return test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and not self._split and not self._caught:
            [operator], [right] = test.ops, test.comparators
            if isinstance(operator, ast.Eq):
                return self._equal(test.left, right)
            if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                sides = [self.visit(test.left), self.visit(right), ast.Constant(type(operator).__name__)]
                return ast.Call(_name("__order__"), sides, [])
            if isinstance(operator, ast.In):
                return ast.Call(_name("__contains__"), [self.visit(test.left), self.visit(right)], [])
        if not self._split and isinstance(test, ast.Call) and ast.unparse(test.func) == "__near__":
            place = self._kept(test.args[1])
            return ast.Call(_name("__known__"), [self.visit(test.args[0]), place, test.args[2]], [])
        return ast.Call(_name("__true__"), [test if self._pinned(test) else self.visit(test)], [])

    def _equal(self, left: ast.expr, right: ast.expr) -> ast.expr:
        for one, other in ((left, right), (right, left)):
            place = self._kept(other) if not isinstance(one, ast.Constant) else None
            if place is not None:
                self._compared.setdefault(ast.unparse(one), []).append(place.value)
                return ast.Call(_name("__known__"), [self._direct(one), place], [])
        return ast.Call(_name("__alike__"), [self.visit(left), self.visit(right)], [])

    def _pinned(self, test: ast.expr) -> bool:
        """Rewrites a comparison with a known value: a call that is one side of it may answer as that says, each time."""
        if not isinstance(test, ast.Compare) or len(test.ops) > 1 or not isinstance(test.ops[0], ast.Eq | ast.Is):
            return False
        if _literal(test.comparators[0]) is not None:
            test.left = self._direct(test.left)
        elif _literal(test.left) is not None:
            test.comparators = [self._direct(test.comparators[0])]
        else:
            return False
        return True

    def _direct(self, node: ast.expr) -> ast.expr:
        """Returns what is compared with a known value; a call that is all of it may change its answer."""
        if isinstance(node, ast.Call):
            node.args = [self.visit(each) for each in node.args]
            node.keywords = [self.visit(each) for each in node.keywords]
            node.func = self.visit(node.func) if not isinstance(node.func, ast.Name) else node.func
            return node
        done: ast.expr = self.visit(node)
        return done

    def _kept(self, node: ast.expr) -> ast.Constant | None:
        """Takes a value out of the tests, if the node is one; returns its place."""
        wire = _literal(node)
        if wire is None:
            return None
        self.prepared.literals.append(wire[0])
        place = len(self.prepared.literals) - 1
        if self._sure:
            self.prepared.required.setdefault(self._unit, []).append(place)
        return ast.Constant(place)


def _literal(node: ast.expr) -> tuple[Any] | None:
    """Returns the value that stands in a node, as `encode` writes it."""
    if not all(map(_is_cheap, ast.walk(node))):
        return None
    try:
        value = eval(compile(ast.fix_missing_locations(ast.Expression(node)), "<tests>", "eval"), {"__builtins__": {}})
        return (encode(value),)
    except (NotPlain, SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError, NameError):
        return None


def _is_cheap(node: ast.AST) -> bool:
    """Returns whether a node may stand in a value that is computed here: no name, and no number of a million digits."""
    if isinstance(node, ast.BinOp):
        sizes = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and type(each.value) is int]
        most = max(map(abs, sizes), default=0)
        if isinstance(node.op, ast.Pow):
            return most <= _LARGEST_BASE and len(sizes) == 2
        return isinstance(node.op, ast.Add | ast.Sub) or most <= _LARGEST_FACTOR
    known = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.expr_context, ast.operator)
    return isinstance(node, (*known, ast.unaryop))


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _name_of(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_class(name: str) -> bool:
    return name[:1].isupper()


def _asks_for_change(node: ast.AST) -> bool:
    """Returns whether two answers are to differ."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotEq | ast.IsNot):
        return _literal(node.left) is None and _literal(node.comparators[0]) is None
    return isinstance(node, ast.Call) and _name_of(node) in _UNEQUAL


def _lone_methods(every: Sequence[ast.stmt], names: Collection[str]) -> set[str]:
    """Returns `s.f` for an object made without arguments of which the tests use nothing but `f`: a function in disguise."""
    nodes = [node for statement in every for node in ast.walk(statement)]
    made = {
        node.targets[0].id
        for node in nodes
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in names
        and not node.value.args
    }
    used: dict[str, set[str]] = {}
    bare = {node.id: 0 for node in nodes if isinstance(node, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in made:
            used.setdefault(node.value.id, set()).add(node.attr)
            bare[node.value.id] += 1
    loads = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {
        f"{name}.{min(attributes)}"
        for name, attributes in used.items()
        if len(attributes) == 1 and loads.count(name) == bare[name]
    }
