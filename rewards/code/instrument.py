"""Prepares parsed tests to be run unit by unit: the judge decides what they compare, and hears how each unit ended.

Expected values that stand in an assertion are taken out where the solution runs in the same process (`split=False`).
See `guest.units` for the names that the prepared source calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from grpo.rewards.code.guest.plain import NotPlain, encode


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EQUAL = _words("assertEqual assertEquals assertListEqual assertDictEqual assertTupleEqual assertSetEqual")
_EXPECTING = tuple(_words("raises warns deprecated_call assertRaises assertWarns assertLogs assertNoLogs suppress"))
_FORGIVES = r"\((?:AssertionError|Exception|BaseException)\b"
_UNEQUAL = frozenset(("assertNotEqual", "assertIsNot"))
_CONVERSIONS = _words("int float complex str repr bytes len bool abs round hash")
_LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.GeneratorExp)
_LARGEST_BASE, _LARGEST_FACTOR = 200, 10_000


@dataclass(slots=True)
class Prepared:
    """What was taken out of tests.

    Attributes:
        literals: the expected values, as `encode` writes them.
        required: for each unit, those that it asks for whenever it runs to its end.
        sure: for each unit, its assertions that are reached whenever it runs to its end.
        reaching: the units all of whose assertions stand where they may not be reached.
        several: expected values of objects that are made alike, for which the tests expect others too.
    """

    literals: list[Any] = field(default_factory=list)
    required: dict[int, list[int]] = field(default_factory=dict)
    sure: dict[int, list[int]] = field(default_factory=dict)
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
        stored = [node.id for top in every for node in ast.walk(top) if _is_stored(node)]
        self._assigned_again = {name for name in stored if stored.count(name) > 1}
        self._forgiven = _called_where_failing_is_expected(every)
        self._places = 0
        self._in_function = 0  # outside of functions; in one, the number of the assertion that it begins with, or -1
        self._changing = self._caught = self._in_assert = False
        self._pinned_names: set[str] = set()
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
        self._unit, self._assertions = number, []
        self._changing = _asks_for_change(body, self._names | self._methods)
        self._pinned_names = _pinned_names(body)
        done = self._block(body, sure=sure and self._none_skipped)
        if self._assertions and not any(self._assertions):
            self.prepared.reaching.append(number)
        self._unit, self._changing = -1, False
        return done

    def _block(self, body: list[ast.stmt], *, sure: bool) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in body:
            self._sure = sure and isinstance(statement, ast.Assert | ast.Expr | ast.With | ast.AsyncWith)
            result = self.visit(statement)
            done.extend(result if isinstance(result, list) else [result])
        self._sure = False
        return done

    def visit_FunctionDef(self, node: Any) -> Any:
        """Rewrites a function of the tests; one that is left before its first assertion is noticed."""
        outer = self._caught, self._in_function
        self._caught = self._caught or node.name in self._forgiven
        begins = not self._caught and _begins_with_assertion(node.body)
        self._in_function = self._next_place() if begins else -1
        entered = [_call_of("__enter__", self._in_function)] if begins else []
        node.body = [*entered, *self._block(node.body, sure=begins)]
        self._caught, self._in_function = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` looks for

    def visit_Try(self, node: ast.Try) -> ast.Try:
        outer, self._caught = self._caught, True
        self.generic_visit(node)
        self._caught = outer
        return node

    def visit_With(self, node: Any) -> Any:
        """Rewrites a block: it runs to its end, unless an exception is expected in it."""
        sure, outer = self._sure, self._caught
        expected = [item.context_expr for item in node.items if _expects(item.context_expr)]
        node.items = [self.visit(item) for item in node.items]
        self._caught = outer or any(re.search(_FORGIVES, ast.unparse(each)) for each in expected)
        node.body = self._block(node.body, sure=sure and not expected)
        self._caught = outer
        if not expected or self._unit < 0:
            return node
        self._assertions.append(sure)
        return [node, _call_of("__true__", True, self._place(sure))]

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """Rewrites an assignment; what is only compared with known values may change."""
        pinned = isinstance(node.targets[0], ast.Name) and node.targets[0].id in self._pinned_names
        node.value = self._direct(node.value) if pinned else self.visit(node.value)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        """Rewrites a condition; one that raises an AssertionError is an assertion."""
        raised = node.body[0] if len(node.body) == 1 and not node.orelse else None
        asserts = self._in_function == 0 and isinstance(raised, ast.Raise)
        if (
            asserts
            and isinstance(raised, ast.Raise)
            and raised.exc is not None
            and "AssertionError" in ast.unparse(raised.exc)
        ):
            asserted: ast.stmt = self.visit_Assert(ast.Assert(ast.UnaryOp(ast.Not(), node.test), None))
            return asserted
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        place = -1
        if not (isinstance(node.test, ast.Constant) and not node.test.value):
            self._assertions.append(self._sure)
            place = self._place(self._sure)
        self._in_assert = True
        test = self._asserted(node.test)
        self._in_assert = False
        node.test = ast.Call(_name("__true__"), [test, ast.Constant(place), ast.Constant(self._caught)], [])
        self._sure = False
        return node

    def _place(self, sure: bool) -> int:
        """Returns the number of an assertion that is surely reached, -1 for one that may not be."""
        if self._in_function != 0:
            place, self._in_function = (self._in_function, -1) if sure else (-1, self._in_function)
            return place
        if not sure or self._unit < 0:
            return -1
        place = self._next_place()
        self.prepared.sure.setdefault(self._unit, []).append(place)
        return place

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value
        sure = self._sure
        method = _name_of(call) if isinstance(call, ast.Call) else ""
        if method.startswith("assert") and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            self._assertions.append(sure)
            if method in _EQUAL and len(call.args) >= 2 and not self._split and not self._caught:
                asked = self._equal(call.args[0], call.args[1])
                asked = ast.Call(_name("__true__"), [asked, ast.Constant(self._place(sure))], [])
                node.value = ast.Call(ast.Attribute(call.func.value, "assertTrue", ast.Load()), [asked], [])
                return node
            self.generic_visit(node)
            return [node, _call_of("__true__", True, self._place(sure))]
        self.generic_visit(node)
        return [node, _call_of("__forget__")] if isinstance(call, ast.Call) and self._unit >= 0 else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        name = {ast.Eq: "__alike__", ast.NotEq: "__differ__", ast.In: "__contains__"}.get(type(node.ops[0]))
        if self._split or self._caught or name is None or len(node.ops) > 1:
            self.generic_visit(node)
            return node
        if name == "__contains__":
            return ast.Call(_name(name), [self.visit(node.left), self.visit(node.comparators[0])], [])
        return self._compare(name, node.left, node.comparators[0])

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if self._unit < 0 or self._split or self._changing or not isinstance(node.ctx, ast.Load) or not self._in_assert:
            return node
        return ast.Call(_name("__get__"), [node.value, ast.Constant(node.attr)], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self._visit_parts(node)
        if self._unit < 0 or self._changing or not (node.args or node.keywords):
            return node
        if not self._split and isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS and len(node.args) == 1:
            return ast.Call(_name("__twice__"), [node.func, *node.args], node.keywords)
        asked = isinstance(node.func, ast.Name) and node.func.id in self._names
        function = isinstance(node.func, ast.Attribute) and (
            ast.unparse(node.func) in self._methods or self._is_made_anew(node.func.value)
        )
        if not asked and not function:
            return node
        return ast.Call(_name("__ask__"), [node.func, *node.args], node.keywords)

    def _visit_parts(self, node: ast.Call) -> None:
        """Rewrites what a call is made of; the call itself and its method stay."""
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        else:
            node.func = self.visit(node.func)
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]

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
        if isinstance(test, ast.Compare) and self._asks(test, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            names: list[ast.expr] = [ast.Constant(type(operator).__name__) for operator in test.ops]
            sides = [self.visit(side) for side in (test.left, *test.comparators)]
            return ast.Call(_name("__order__"), [ast.Tuple(names, ast.Load()), *sides], [])
        if not self._split and isinstance(test, ast.Call) and ast.unparse(test.func) == "__near__":
            kept = self._kept(test.args[1])
            if kept is not None:
                return ast.Call(_name("__known__"), [self.visit(test.args[0]), ast.Constant(kept), test.args[2]], [])
        pinned = _pinned_sides(test) if isinstance(test, ast.Compare) else []
        if pinned and isinstance(test, ast.Compare):
            test.left = self._direct(test.left)
            test.comparators = [self._direct(test.comparators[0])]
            return test
        rewritten: ast.expr = self.visit(test)
        return rewritten

    def _asks(self, test: ast.Compare, operators: Any) -> bool:
        """Returns whether a comparison has these operators only and is asked of the judge."""
        return not self._split and not self._caught and all(isinstance(each, operators) for each in test.ops)

    def _equal(self, left: ast.expr, right: ast.expr) -> ast.expr:
        for one, other in ((left, right), (right, left)):
            place = self._kept(other) if not isinstance(one, ast.Constant) else None
            if place is not None:
                if self._is_made_anew(one) or (isinstance(one, ast.Name) and one.id not in self._assigned_again):
                    self._compared.setdefault(ast.unparse(one), []).append(place)
                return ast.Call(_name("__known__"), [self._direct(one), ast.Constant(place)], [])
        return self._compare("__alike__", left, right)

    def _compare(self, name: str, left: ast.expr, right: ast.expr) -> ast.expr:
        """Returns a comparison that computes what is expected before the solution can change what it is computed of."""
        if _mentions(right, self._names) and not _mentions(left, self._names):
            left, right = right, left
        return ast.Call(_name(name), [self.visit(right), self.visit(left)], [])

    def _direct(self, node: ast.expr) -> ast.expr:
        """Returns what is compared with a known value: answers that are all of it, or items of it, may change."""
        if isinstance(node, ast.List | ast.Tuple):
            node.elts = [self._direct(each) for each in node.elts]
        elif isinstance(node, ast.ListComp):
            node.elt, node.generators = self._direct(node.elt), [self.visit(each) for each in node.generators]
        elif isinstance(node, ast.Attribute):
            node.value = self.visit(node.value)
        elif isinstance(node, ast.Call):
            self._visit_parts(node)
        else:
            node = self.visit(node)
        return node

    def _kept(self, node: ast.expr) -> int | None:
        """Takes a value out of the tests, if the node is one; returns its place."""
        wire = _literal(node)
        if wire is None:
            return None
        self.prepared.literals.append(wire[0])
        place = len(self.prepared.literals) - 1
        if self._sure and self._in_function == 0 and self._unit >= 0:
            self.prepared.required.setdefault(self._unit, []).append(place)
        return place


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


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _mentions(node: ast.expr, names: Collection[str]) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def _name_of(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _call_of(name: str, *given: Any) -> ast.stmt:
    return ast.Expr(ast.Call(_name(name), [ast.Constant(each) for each in given], []))


def _expects(node: ast.expr) -> bool:
    """Returns whether the context of a block expects an exception, a warning or a log line."""
    return isinstance(node, ast.Call) and _name_of(node).startswith(_EXPECTING)


def _called_where_failing_is_expected(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the names in blocks that expect an AssertionError, or catch what is raised in them."""
    blocks: list[ast.AST] = []
    for node in (inner for statement in every for inner in ast.walk(statement)):
        if isinstance(node, ast.With | ast.AsyncWith):
            contexts = [item.context_expr for item in node.items if _expects(item.context_expr)]
            if any(re.search(_FORGIVES, ast.unparse(each)) for each in contexts):
                blocks.extend(node.body)
        elif isinstance(node, ast.Try):
            blocks.extend(node.body)
        elif isinstance(node, ast.Call) and _expects(node) and re.search(_FORGIVES, ast.unparse(node)):
            blocks.append(node)
    return {inner.id for block in blocks for inner in ast.walk(block) if isinstance(inner, ast.Name)}


def _begins_with_assertion(body: list[ast.stmt]) -> bool:
    """Returns whether a function surely comes to its first assertion, unless something goes wrong before."""
    for statement in body:
        if isinstance(statement, ast.Assert):
            return not isinstance(statement.test, ast.Constant)
        expecting = isinstance(statement, ast.With | ast.AsyncWith) and any(
            _expects(item.context_expr) for item in statement.items
        )
        asserting = any(isinstance(inner, ast.Assert) for inner in ast.walk(statement))
        if isinstance(statement, ast.With | ast.AsyncWith) and asserting and not expecting:
            return _begins_with_assertion(statement.body)
        if any(isinstance(inner, ast.Return | ast.Raise | ast.Try | ast.Yield) for inner in ast.walk(statement)):
            return False
    return False


def _asks_for_change(body: Sequence[ast.stmt], functions: Collection[str]) -> bool:
    """Returns whether tests want answers that differ: one is asked for again and again, or is true and then is not."""
    wanted: set[str] = set()
    unwanted: set[str] = set()
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotEq | ast.IsNot):
            if _literal(node.left) is None and _literal(node.comparators[0]) is None:
                return True
        elif isinstance(node, ast.Call) and _name_of(node) in _UNEQUAL:  # noqa: SIM114 - another kind of node
            return True
        elif isinstance(node, _LOOPS) and _repeats(node, functions):
            return True
        elif isinstance(node, ast.Assert) and isinstance(node.test, ast.UnaryOp):
            unwanted.add(ast.unparse(node.test.operand))
        elif isinstance(node, ast.Assert):
            wanted.add(ast.unparse(node.test))
    return bool(wanted & unwanted)


def _repeats(node: ast.For | ast.ListComp | ast.SetComp | ast.GeneratorExp, functions: Collection[str]) -> bool:
    """Returns whether a loop calls one of the functions and does the same each time."""
    targets = [node.target] if isinstance(node, ast.For) else [each.target for each in node.generators]
    inside = list(ast.walk(node))
    names = {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
    used = {inner.id for inner in inside if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}
    calls = (inner for inner in inside if isinstance(inner, ast.Call) and inner.args)
    return not names & used and any(ast.unparse(call.func) in functions for call in calls)


def _pinned_names(body: Sequence[ast.stmt]) -> set[str]:
    """Returns the names of which nothing is asked but whether they equal a known value."""
    nodes = [inner for statement in body for inner in ast.walk(statement)]
    pinned = {id(side) for node in nodes if isinstance(node, ast.Compare) for side in _pinned_sides(node)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    loads = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return names - {node.id for node in loads if id(node) not in pinned}


def _pinned_sides(node: ast.Compare) -> list[ast.expr]:
    """Returns the side of a comparison that must equal a known value."""
    if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Eq | ast.Is):
        return []
    sides = [node.left, node.comparators[0]]
    return [side for side, other in zip(sides, reversed(sides), strict=True) if _literal(other) is not None]


def _lone_methods(every: Sequence[ast.stmt], names: Collection[str]) -> set[str]:
    """Returns `s.f` for objects made without arguments of which tests use nothing but `f`: functions in disguise."""
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
