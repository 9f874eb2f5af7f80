"""Finds tests that do nothing but compare answers to known calls with known values: `assert f(2) == 4`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.rewards.code.guest.plain import Malformed, decode
from grpo.rewards.code.guest.units import same
from grpo.rewards.code.syntax import called_by_name, literal


@dataclass(frozen=True, slots=True)
class KnownCall:
    """A call of the solution with its expected answer; values are as `encode` writes them.

    Attributes:
        function: the name of the function.
        args: a list, its arguments.
        named: a dictionary, its keyword arguments.
        expected: the answer.
        tolerance: by how much a float may differ, where the tests compare by `__near__`.
        truth: nothing is asked but whether the answer is true.
    """

    function: str
    args: Any
    named: Any
    expected: Any
    tolerance: float | None = None
    truth: bool = False

    def holds(self, wire: Any) -> bool:
        """Returns whether an answer is the expected one.

        Raises:
            Malformed: it is no value, or it is to be true and no bool.
        """
        if self.truth and type(wire) is not bool:
            raise Malformed("the truth of what is no bool")
        value, expected = decode(wire), decode(self.expected)
        return bool(value == expected) if self.tolerance is None else same(value, expected, self.tolerance)


def known_calls(body: Sequence[ast.stmt], names: Collection[str]) -> tuple[KnownCall, ...]:
    """Returns the calls of a unit that does nothing else; none of any other unit.

    Args:
        body: its statements.
        names: the functions of the solution; where there is one, `candidate` is that.
    """
    asked = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    calls = [_known_call(node.test, names) if isinstance(node, ast.Assert) else None for node in asked]
    return tuple(call for call in calls if call is not None) if all(calls) else ()


def _known_call(test: ast.expr, names: Collection[str]) -> KnownCall | None:
    tolerance, truth = None, False
    call: ast.expr
    value: ast.expr
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
        call, value = test.left, test.comparators[0]
        if literal(call) is not None:
            call, value = value, call
        truth = isinstance(test.ops[0], ast.Is)
        if truth and not (isinstance(value, ast.Constant) and type(value.value) is bool):
            return None
    elif called_by_name(test) == "__near__" and isinstance(test, ast.Call):
        call, value, tolerance = *test.args[:2], ast.literal_eval(test.args[2])
    else:
        call, value, truth = test, ast.Constant(True), True
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            call, value = test.operand, ast.Constant(False)
    name = called_by_name(call)
    if not isinstance(call, ast.Call):
        return None
    name = next(iter(names)) if name == "candidate" and len(names) == 1 else name
    keys: list[ast.expr | None] = [ast.Constant(each.arg) if each.arg else None for each in call.keywords]
    parts = (ast.List(call.args, ast.Load()), ast.Dict(keys, [each.value for each in call.keywords]), value)
    args, named, expected = map(literal, parts)
    if name not in names or args is None or named is None or expected is None:
        return None
    return KnownCall(name, args[0], named[0], expected[0], tolerance, truth)
