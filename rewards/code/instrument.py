"""Prepares parsed tests to be run unit by unit: the judge hears which assertions were reached and how each unit ended.

The judge's functions stand in the code as texts, which `guest.together` replaces by the functions of `guest.units`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo.rewards.code.assertions import (
    EQUAL_METHODS,
    FORGIVES,
    UNIT_ERROR,
    asserted_condition,
    called_where_failing_is_expected,
    catches_failures,
    expects,
    failing_condition,
)
from grpo.rewards.code.functions import given_names, lone_methods
from grpo.rewards.code.syntax import (
    FUNCTIONS,
    called,
    called_by_name,
    find,
    judge_call,
    names_in,
    related_names,
    watched,
)

_LONGEST = 200  # characters of an assertion that a reason quotes


@dataclass(slots=True)
class Prepared:
    """What is known of the assertions of tests.

    `sure`: for each unit, its assertions that are reached whenever it runs to its end. `asking`: the units with an
    assertion among these that asks something of the solution. `reaching`: the units none of whose assertions is sure.
    """

    sure: list[list[int]] = field(default_factory=list)
    asking: set[int] = field(default_factory=set)
    reaching: list[int] = field(default_factory=list)


class Instrument(ast.NodeTransformer):
    """Rewrites assertions, and calls of functions beside which the tests run.

    `names`: the globals of the solution, and what stands for them. `every`: the tests as they came. `split`: the
    solution runs elsewhere. `sure`: no test is skipped or may fail.
    """

    def __init__(
        self,
        names: Collection[str],
        every: Sequence[ast.stmt],
        *,
        split: bool,
        sure: bool = True,
    ) -> None:
        self.prepared = Prepared()
        self.units = 0
        self._split, self._none_skipped = split, sure
        self.names = frozenset(names)
        self._unit = -1
        self._sure = False
        self._assertions: list[bool] = []
        self._methods = lone_methods(every, self.names)
        functions: list[Any] = find(every, *FUNCTIONS)
        self._own = {node.name for node in functions}  # which may do something else than unittest's
        self._own |= EQUAL_METHODS if "addTypeEqualityFunc" in map(called, find(every, ast.Call)) else set()
        self._forgiven = called_where_failing_is_expected(every)
        self._reached: dict[int, list[int]] = {}
        self._places = 0
        self._in_function = 0  # outside of functions; in one, the number of the assertion that it begins with, or -1
        self._caught = False
        self._related = related_names(every, self.names)  # they may have what the solution answered
        self._parameters: set[str] = set()  # of the functions around, in a test or beside it
        self._every, self._given = every, set[str]()

    def finished(self, count: int) -> Prepared:
        """Returns what is known of so many units, when all is rewritten."""
        self.prepared.sure = [self._reached.get(unit, []) for unit in range(count)]
        return self.prepared

    def next_unit(self) -> int:
        """Returns the number of another unit."""
        self.units += 1
        return self.units - 1

    def block(self, unit: int, body: list[ast.stmt]) -> ast.stmt:
        """Returns the statement that runs a unit."""
        return watched(judge_call("__begin__", unit), body, "__ended__", unit, error=UNIT_ERROR)

    def unit(self, number: int, body: list[ast.stmt], *, sure: bool = True) -> list[ast.stmt]:
        """Returns the statements of a unit, rewritten; `sure` where they run whenever the unit passes."""
        self._unit, self._assertions = number, []
        self._given = given_names(self._every) | given_names(body)
        done = self._block(body, sure=sure and self._none_skipped)
        if self._assertions and not any(self._assertions):
            self.prepared.reaching.append(number)
        self._unit = -1
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
        outer = self._caught, self._in_function, self._parameters
        self._caught = self._caught or node.name in self._forgiven
        self._parameters = self._parameters | {each.arg for each in find(node.args, ast.arg)}
        begins = not self._caught and _begins_with_assertion(node.body)
        self._in_function = self._next_place() if begins else -1
        entered = [ast.Expr(judge_call("__enter__", self._in_function))] if begins else []
        node.body = [*entered, *self._block(node.body, sure=begins)]
        self._caught, self._in_function, self._parameters = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` looks for

    def visit_Try(self, node: ast.Try) -> ast.Try:
        outer, self._caught = self._caught, self._caught or catches_failures(node)
        node.body = self._block(node.body, sure=False)
        self._caught = outer
        node.handlers = [self.visit(each) for each in node.handlers]
        node.orelse, node.finalbody = (self._block(each, sure=False) for each in (node.orelse, node.finalbody))
        return node

    def visit_With(self, node: Any) -> Any:
        """Rewrites a block: it runs to its end, unless an exception is expected in it."""
        sure, outer = self._sure, self._caught
        expected = [item.context_expr for item in node.items if expects(item.context_expr)]
        node.items = [self.visit(item) for item in node.items]
        self._caught = outer or any(re.search(FORGIVES, ast.unparse(each)) for each in expected)
        node.body = self._block(node.body, sure=sure and not expected)
        self._caught = outer
        return [node, self._passed(sure)] if expected and self._unit >= 0 else node

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_If(self, node: ast.If) -> ast.stmt:
        """Rewrites a condition; one on which the test fails is an assertion."""
        failing = failing_condition(node) if self._in_function == 0 else None
        if failing is not None:
            return self.visit_Assert(ast.Assert(ast.UnaryOp(ast.Not(), failing), None))
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        place, asks = -1, self._asks(node.test)
        text = ast.unparse(node.test)[:_LONGEST]
        if not (isinstance(node.test, ast.Constant) and not node.test.value):
            self._assertions.append(self._sure)
            if self._sure and asks and self._in_function == 0 and self._unit >= 0:
                self.prepared.asking.add(self._unit)
            place = self._place(self._sure)
        outer, self._caught = self._caught, self._caught or not asks
        node.test = judge_call("__true__", self._asserted(node.test), place, self._caught, text)
        self._caught, self._sure = outer, False
        return node

    def _asks(self, test: ast.expr) -> bool:
        """Whether an assertion asks for something of the solution.

        Else it is there to fail, in a block that catches it (`assert 1 == 2`) or a function that is tried again.
        """
        names = set(names_in(test)) - vars(builtins).keys()
        return bool(names) and (self._in_function == 0 or bool(names & (self._parameters | self._related)))

    def _passed(self, sure: bool) -> ast.stmt:
        """The statement, placed after an assertion of another form, that notes it."""
        self._assertions.append(sure)
        return ast.Expr(judge_call("__true__", True, self._place(sure)))

    def _place(self, sure: bool) -> int:
        """The number of an assertion that is surely reached, else -1."""
        if self._in_function != 0:
            place, self._in_function = (self._in_function, -1) if sure else (-1, self._in_function)
            return place
        if not sure or self._unit < 0:
            return -1
        place = self._next_place()
        self._reached.setdefault(self._unit, []).append(place)
        return place

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Rewrites what stands alone; methods of unittest and of mocks are assertions like any other."""
        call, sure = node.value, self._sure
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.startswith("assert"):
            condition = None if self._caught or call.func.attr in self._own else asserted_condition(call)
            if condition is not None:
                return self.visit_Assert(ast.Assert(condition, None))
            self.generic_visit(node)
            return [node, self._passed(sure)]
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        own = called_by_name(node) in self.names or ast.unparse(node.func) in self._methods
        own = own or (isinstance(node.func, ast.Attribute) and self._is_made_anew(node.func.value))
        self.generic_visit(node)
        of_function = own and not called(node)[:1].isupper() and not called(node).startswith("__")
        if self._split or not of_function or not (node.args or node.keywords):
            return node
        asked = judge_call("__ask__", node.func, *node.args)
        asked.keywords = node.keywords
        return asked

    def _is_made_anew(self, node: ast.expr) -> bool:
        """Whether an object of the solution is made without arguments, for the one call: `Solution().f(3)`."""
        return isinstance(node, ast.Call) and not (node.args or node.keywords) and called_by_name(node) in self.names

    def _asserted(self, test: ast.expr) -> ast.expr:
        """The condition; what is expected is computed before a call may empty it."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test.values = [self._asserted(value) for value in test.values]
            return test
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and len(test.ops) == 1 and not self._split:
            own = {*self._given, *vars(builtins), *names_in(test.comparators, ast.Store)}
            right = test.comparators[0]
            if find(right, ast.Call) and called(right) != "len" and set(names_in(right)) <= own:
                sides = [ast.keyword("right", self.visit(right)), ast.keyword("left", self.visit(test.left))]
                return ast.Call(ast.Constant("__equal__"), [], sides)
        done: ast.expr = self.visit(test)
        return done


def _begins_with_assertion(body: list[ast.stmt]) -> bool:
    """Whether a function surely comes to its first assertion, unless something goes wrong before."""
    for statement in body:
        if isinstance(statement, ast.Assert):
            return not isinstance(statement.test, ast.Constant)
        if (
            isinstance(statement, ast.With | ast.AsyncWith)
            and find(statement, ast.Assert)
            and not any(expects(item.context_expr) for item in statement.items)
        ):
            return _begins_with_assertion(statement.body)
        if find(statement, ast.Return, ast.Raise, ast.Try, ast.Yield):
            return False
    return False
