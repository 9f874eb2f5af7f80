"""Reads the assertions of parsed tests in all their forms."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from grpo.rewards.code.syntax import called, find, names_in, words

EQUAL_METHODS = words("assertEqual assertEquals assertListEqual assertDictEqual assertTupleEqual assertSetEqual")
_METHODS: dict[str, type[ast.cmpop]] = {
    **dict.fromkeys(EQUAL_METHODS, ast.Eq),
    "assertNotEqual": ast.NotEq,
    "assertIn": ast.In,
    "assertNotIn": ast.NotIn,
    "assertIs": ast.Is,
    "assertIsNot": ast.IsNot,
    "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
    "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE,
}
_NAMED = ("first", "second", "member", "container", "expr1", "expr2", "a", "b", "expr")
_EXPECTING = ("raises", "warns", "deprecated_call", "assertRaises", "assertWarns", "assertLogs", "assertNoLogs")
_FORGIVEN = r"\b(?:AssertionError|Exception|BaseException)\b"
UNIT_ERROR = "__error__"
FORGIVES = rf"\({_FORGIVEN}"


def asserted_condition(call: ast.Call) -> ast.expr | None:
    """Returns the condition that a method of unittest asserts, None for another call."""
    name = called(call)
    args = [*call.args, *(each.value for each in call.keywords if each.arg in _NAMED)]
    if name in ("assertTrue", "assertFalse") and args:
        return args[0] if name == "assertTrue" else ast.UnaryOp(ast.Not(), args[0])
    if name in _METHODS and len(args) > 1:
        return ast.Compare(args[0], [_METHODS[name]()], [args[1]])
    return None


def failing_condition(node: ast.If) -> ast.expr | None:
    """Returns the condition on which a statement fails the test, None for another statement."""
    failing = node.body[0] if len(node.body) == 1 and not node.orelse else None
    raises = isinstance(failing, ast.Raise) and "AssertionError" in ast.unparse(failing)
    fails = isinstance(failing, ast.Expr) and called(failing.value) == "fail"
    return node.test if raises or fails else None


def denies(every: Sequence[ast.stmt], operator: type[ast.cmpop], denied: type[ast.cmpop], method: str) -> bool:
    """Returns whether tests ask for the contrary of an operator somewhere, in whatever form."""
    calls = find(every, ast.Call)
    turned: list[ast.expr] = [node.operand for node in find(every, ast.UnaryOp) if isinstance(node.op, ast.Not)]
    turned += [node.args[0] for node in calls if called(node) == "assertFalse" and node.args]
    compared = find(every, ast.Compare)
    turned += [node.left for node in compared if any(ast.unparse(each) == "False" for each in node.comparators)]
    asked = any(isinstance(each, operator) for node in compared if node not in turned for each in node.ops)
    denies = any(isinstance(node, ast.Compare) and isinstance(node.ops[0], denied) for node in turned)
    return asked or denies or method in map(called, calls)


def compared_constants(every: Sequence[ast.stmt]) -> list[Any]:
    """Returns the different texts and numbers with which tests compare something, not what they give to calls."""
    calls = [call for call in find(every, ast.Call) if called(call).startswith("assert")]
    sides = [side for node in find(every, ast.Compare) for side in (node.left, *node.comparators)]
    sides += [side for call in calls for side in call.args]
    given = {id(part) for call in find(sides, ast.Call) for part in ast.walk(call)}
    values = [node.value for node in find(sides, ast.Constant) if id(node) not in given]
    return [*dict.fromkeys(value for value in values if type(value) in (str, int, float))]


def expects_or_asserts(name: str) -> bool:
    """Returns whether a function of that name expects an exception, a warning or a log line, or asserts something."""
    return name.startswith((*_EXPECTING, "assert", "fail"))


def expects(node: ast.expr) -> bool:
    """Returns whether the context of a block expects an exception, a warning or a log line."""
    return called(node).startswith((*_EXPECTING, "suppress"))


def is_unit(node: ast.Try) -> bool:
    """Returns whether a block is what the judge puts around a unit; see `Instrument.block`."""
    return any(each.name == UNIT_ERROR for each in node.handlers)


def catches_failures(node: ast.Try) -> bool:
    """Returns whether a block expects an AssertionError, or what may be one."""
    if is_unit(node):
        return False
    kinds = [ast.unparse(each.type) if each.type else "Exception" for each in node.handlers]
    return any(map(re.compile(_FORGIVEN).search, kinds))


def called_where_failing_is_expected(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the names in blocks that expect an AssertionError, or catch what is raised in them."""
    blocks: list[ast.AST] = [statement for node in find(every, ast.Try) if not is_unit(node) for statement in node.body]
    withs: list[Any] = find(every, ast.With, ast.AsyncWith)
    for node in withs:
        contexts = [item.context_expr for item in node.items if expects(item.context_expr)]
        if any(re.search(FORGIVES, ast.unparse(each)) for each in contexts):
            blocks.extend(node.body)
    blocks.extend(each for each in find(every, ast.Call) if expects(each) and re.search(FORGIVES, ast.unparse(each)))
    return set(names_in(blocks))
