"""Assertions that ask for one value, whatever else was asked: parsed assertions in, whether they do out.

`assert next_id() == 2` can be passed only by who answers 2, and `assert a.id != b.id` asks for two answers. Neither is
passed by a changing answer that is not meant. `isqrt(n) ** 2 <= n < (isqrt(n) + 1) ** 2` is, if the two calls differ.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from grpo.rewards.code.assert_names import is_known

_EQUAL = frozenset({"assertEqual", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual"})
_UNEQUAL = frozenset({"assertNotEqual", "assertIsNot"})
_TRUTH = frozenset({"assertTrue", "assertFalse", "assertIsNone"})


class Pinned:
    """Knows which assertions of some tests ask for one value.

    Args:
        every: the tests.
        names: the globals that the solution defines.
    """

    def __init__(self, every: Sequence[ast.stmt], names: Collection[str]) -> None:
        nodes = [node for statement in every for node in ast.walk(statement)]
        self._made = {*names, "candidate", "solution"}
        stored = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        self._answers: set[str] = set()
        direct: dict[str, int] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                direct[name] = direct.get(name, 0) + self._is_answer(node.value)
        self._answers = {name for name, count in direct.items() if count == sum(node.id == name for node in stored)}

    def __call__(self, node: ast.stmt) -> bool:
        """Returns whether an assertion asks for one value, or for two that differ."""
        if isinstance(node, ast.Assert):
            return self._asks(node.test)
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
            return False
        if call.func.attr in _UNEQUAL:
            return True
        if call.func.attr in _TRUTH:
            return self._asks(call.args[0])
        return call.func.attr in _EQUAL and len(call.args) > 1 and self._pins(call.args[0], call.args[1])

    def _asks(self, test: ast.expr) -> bool:
        if isinstance(test, ast.BoolOp):
            return all(self._asks(value) for value in test.values)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._asks(test.operand) or self._is_answer(test.operand)
        if not isinstance(test, ast.Compare) or len(test.ops) > 1:
            return self._is_answer(test)
        if isinstance(test.ops[0], ast.NotEq | ast.IsNot):
            return True
        if _relates(test.left, test.comparators[0]):
            return True
        return isinstance(test.ops[0], ast.Eq | ast.Is) and self._pins(test.left, test.comparators[0])

    def _pins(self, one: ast.expr, other: ast.expr) -> bool:
        pairs = [(one, other), (other, one)]
        return any(self._is_answer(answer) and is_known(value) for answer, value in pairs)

    def _is_answer(self, node: ast.expr) -> bool:
        """Returns whether it is one answer of the solution as it came: a call, an attribute, a name for one."""
        if isinstance(node, ast.Name):
            return node.id in self._made | self._answers
        if isinstance(node, ast.Await):
            return self._is_answer(node.value)
        if isinstance(node, ast.Attribute):
            return True
        if not isinstance(node, ast.Call) or any(isinstance(each, ast.Call) for each in node.args):
            return False
        of_solution = isinstance(node.func, ast.Name) and (node.func.id in self._made | self._answers)
        return of_solution or isinstance(node.func, ast.Attribute)


def _relates(one: ast.expr, other: ast.expr) -> bool:
    """Returns whether an attribute of one object stands beside that of another, as in `b.id == a.id + 1`."""
    owners = [_owner(side) for side in (one, other)]
    return "" not in owners and owners[0] != owners[1]


def _owner(node: ast.expr) -> str:
    """Returns the name of whose attribute, or answer, it is, give or take a constant; "" for anything else."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        return _owner(node.func)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and is_known(node.right):
        return _owner(node.left)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id
    return ""
