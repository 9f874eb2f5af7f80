"""Alters what tests expect, so that a right solution fails them: `== 5` becomes `== 6`, `a < b` becomes `a > b`.

A solution that passes an altered test as well did not pass the test by being right: it says yes to everything, reads
what is expected, patches the assertions, or leaves before they count. An altered test looks to it like the test itself,
but for the value. In each run every assertion is altered in another way, and its failure does not end the test.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import re
from collections.abc import Collection, Sequence
from typing import Any

from grpo.rewards.code.assertions import (
    EQUAL_METHODS,
    asserted_condition,
    called_where_failing_is_expected,
    failing_condition,
    is_unit,
)
from grpo.rewards.code.syntax import FUNCTIONS, called, find, judge_call, names_in, related_names, watched, words
from grpo.rewards.code.ways import Way, Ways, fixed, scheduled

_EXPECTED_TO_FAIL = r"xfail|expectedFailure"
_RAISING = words("raises assertRaises assertRaisesRegex warns assertWarns assertWarnsRegex")
_OF_MOCKS = words("assert_called_with assert_called_once_with assert_any_call assert_has_calls assert_called")
_OF_MOCKS |= words("assert_called_once assert_not_called assert_awaited_with assert_awaited_once_with")
_LIKE = words("assertAlmostEqual assertCountEqual assertSequenceEqual assertMultiLineEqual")
_INVERSES = {"assertIsInstance": "assertNotIsInstance", "assertRegex": "assertNotRegex"}
_INVERSES |= {"assertIsNone": "assertIsNotNone", "assert_called": "assert_not_called"}
_INVERSES |= {other: name for name, other in _INVERSES.items()} | {"assert_called_once": "assert_not_called"}

_ERRORS = ("BufferError", "FloatingPointError", "ReferenceError", "EOFError", "TabError", "BlockingIOError")
_WARNINGS = ("BytesWarning", "UnicodeWarning", "EncodingWarning", "ImportWarning")
_DECIDING = words("__yes__ __first__ __second__ __both__ __stranger__ __strangers__")  # whether something is asked


@functools.lru_cache(maxsize=4096)
def altered_tests(source: str, names: tuple[str, ...], run: int) -> tuple[str, int]:
    """Returns altered tests, and in how many ways one of their assertions can be altered at most.

    `source`: the prepared tests. `names`: the globals of the solution. `run`: the number of the run.
    """
    every = ast.parse(source).body
    change = Altering(every, names, run)
    done = ast.Module([change.visit(node) for node in every], [])
    return ast.unparse(ast.fix_missing_locations(done)), change.most_ways


class Altering(ast.NodeTransformer):
    """Alters parsed tests, all but those that are expected to fail; arguments as for `altered_tests`."""

    def __init__(self, every: Sequence[ast.stmt], names: Collection[str], run: int) -> None:
        self._run, self._places = run, 0
        self.most_ways = 1  # to alter an assertion
        self._ways = Ways(every, names)
        self._own = {node.name for node in find(every, *FUNCTIONS)}  # type: ignore[attr-defined]
        self._own |= EQUAL_METHODS if "addTypeEqualityFunc" in map(called, find(every, ast.Call)) else set()
        self._all_names = {*names_in(every)}
        self._fails = called_where_failing_is_expected(every)
        self._related = related_names(every, names)
        self._depth = 0  # of functions around, but for those with units
        self._parameters: frozenset[str] = frozenset()  # of the functions around

    def visit_FunctionDef(self, node: Any) -> Any:
        """Alters a function, unless it may fail."""
        if node.name in self._fails or re.search(_EXPECTED_TO_FAIL, ast.unparse(node)):
            return node
        outer = self._parameters
        helps = not node.name.startswith("test") and not any(map(is_unit, find(node, ast.Try)))
        self._parameters = outer | {each.arg for each in find(node.args, ast.arg)}
        self._depth += helps
        node.body = self._block(node.body)
        self._depth -= helps
        self._parameters = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` looks for

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Alters a class of tests."""
        if not any(re.search(_EXPECTED_TO_FAIL, ast.unparse(each)) for each in node.decorator_list):
            node.body = self._block(node.body)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Leaves a function that holds no assertion."""
        return node

    def _block(self, body: list[Any]) -> list[Any]:
        return [self.visit(node) for node in body]

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """Alters a block, unless what is raised in it is caught."""
        if is_unit(node) or not node.handlers:
            node.body = self._block(node.body)
        node.handlers = self._block(node.handlers)
        node.orelse, node.finalbody = self._block(node.orelse), self._block(node.finalbody)
        return node

    def visit_With(self, node: Any) -> Any:
        """Alters what exception, or warning, a block expects; what stands in it is left as it is."""
        for at, item in enumerate(node.items):
            name = called(item.context_expr)
            if name in _RAISING:
                if any(each.optional_vars is not None for each in node.items) and self._run % 2:
                    return node  # what follows asks for the exception
                inner = type(node)(node.items[at:], node.body, None)
                node.body = [self._soft([fixed(self._expecting_other(inner, item.context_expr))], inner)]
                node.items = node.items[:at]  # what may keep a failure, such as `subTest`, stays around it
                return node if node.items else node.body[0]
            if name.startswith(("assert", "deprecated_call", "suppress")):
                return node
        node.body = self._block(node.body)
        return node

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_If(self, node: ast.If) -> ast.stmt:
        """Alters the condition on which a test fails."""
        failing = failing_condition(node)
        if failing is not None and (not self._depth or set(names_in(failing)) & self._parameters):
            return self.visit_Assert(ast.Assert(ast.UnaryOp(ast.Not(), failing), None))
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Alters an assertion, unless it asks nothing of the solution."""
        judged = isinstance(node.test, ast.Call) and isinstance(node.test.func, ast.Constant)
        test, *rest = node.test.args if judged else [node.test]  # type: ignore[attr-defined]
        names = set(names_in(test)) - vars(builtins).keys()
        if not names or (self._depth and not names & (self._parameters | self._related)):
            return node

        def asserted(altered: ast.expr) -> ast.Assert:
            return ast.Assert(judge_call("__true__", altered, *rest) if judged else altered, None)

        return self._soft([way.then(asserted) for way in self._ways.of(test)], node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Alters an assertion of unittest, of a mock or of a library."""
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr in self._own:
            return node
        name, owner = call.func.attr, ast.unparse(call.func.value)
        condition = asserted_condition(call)
        if name in _RAISING:
            return self._soft([fixed(self._expecting_other(node, call))], node)
        if condition is not None:
            return self.visit_Assert(ast.Assert(condition, None))
        if name in _OF_MOCKS or (name.startswith("assert") and (name[6:7].isupper() or "." in owner)):
            return self._soft(self._ways_of_call(node, call, name), node)
        return node

    def _ways_of_call(self, node: ast.Expr, call: ast.Call, name: str) -> list[Way]:
        named = [each.value for each in call.keywords if name in _OF_MOCKS]
        leaves = [*call.args[: None if name in _OF_MOCKS else 2][::-1], *named]
        if name == "assert_any_call":  # any number may have been one of many
            others = {id(each): ast.Constant("__none_of_them__") for each in call.args[:1]}
            return [fixed(copy.deepcopy(node, others), "~")] if others else []
        near, inverted = name == "assertAlmostEqual", "not" in name.lower() or "Regex" in name
        ways = [] if inverted else [*self._ways.leaves_of(node, leaves, is_near=near), *self._ways.levers(node)]
        if ways or name in _INVERSES:
            return ways or [fixed(_renamed(node, call, _INVERSES[name]))]
        if name in _LIKE and len(call.args) > 1:
            both: list[ast.expr] = [
                judge_call("__first__", call.args[0]),
                judge_call("__second__", call.args[1], True),
            ]
        elif name in _OF_MOCKS and call.args and "not" not in name:
            both = [judge_call("__second__", call.args[0], True), *call.args[1:2]]
        else:
            return []
        return [fixed(ast.Expr(ast.Call(call.func, [*both, *call.args[2:]], call.keywords)), "~")]

    def _expecting_other(self, whole: Any, call: ast.expr) -> Any:
        """The statement, expecting another exception or warning, which no solution raises."""
        assert isinstance(call, ast.Call)
        others = _WARNINGS if "arn" in called(call) else _ERRORS
        other = next(name for name in others[self._run % 2 :] if name not in self._all_names)
        given = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg), None)
        return whole if given is None else copy.deepcopy(whole, {id(given): ast.Name(other, ast.Load())})

    def _altered(self, ways: list[Way]) -> tuple[Any, str]:
        """The node altered in one of the ways, and its key; see `tests_judge`."""
        self._places += 1
        self.most_ways = max(self.most_ways, len(ways))
        self._ways.begin(self._places, self._run)
        at, trial = scheduled(ways, self._run)
        altered = ways[at].make(trial)
        return altered, f"{self._places} {at} {self._ways.leaf} {self._ways.is_near:d} {ways[at].kind}"

    def _soft(self, ways: list[Way], node: ast.stmt) -> ast.stmt:
        """The altered assertion, whose failure does not end the test."""
        if not ways:
            return node
        altered, key = self._altered(ways)
        texts = {each.value for each in find(altered, ast.Constant) if type(each.value) is str}
        decided = _DECIDING if key.endswith("?") else {"__seen__", "__second__", "__both__"}
        asks = not texts & decided  # else the judge sees whether something is asked
        return watched(judge_call("__soft__", key, asks), [altered], "__held__", error="__failure__")


def _renamed(whole: Any, call: ast.Call, name: str) -> Any:
    function = copy.copy(call.func)
    function.attr = name  # type: ignore[attr-defined]
    args = [] if name == "assert_not_called" else call.args
    return copy.deepcopy(whole, {id(call): ast.Call(function, args, call.keywords)})
