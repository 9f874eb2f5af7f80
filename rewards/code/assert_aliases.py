"""Tests that count on two names for one object: parsed tests in, a refusal of those that the judge cannot follow out.

What crosses between the sandboxes is a copy once the call is over. So where tests change what an object of the solution
holds (`box.items.append(1)`), or change or watch a list that they gave to one when they made it, plain Python and the
judge would see different things, and nothing follows about the solution.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeGuard

from grpo.rewards.code.results import UnusableTests

_CHANGES = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "sort", "update"}
)


def refuse_aliases(every: Sequence[ast.stmt], classes: set[str]) -> None:
    """Refuses tests that count on a change of one object to show in another sandbox.

    Args:
        every: the tests.
        classes: the names that stand for classes of the solution.

    Raises:
        UnusableTests: they do.
    """
    nodes = [node for statement in every for node in ast.walk(statement)]
    makes = [node for node in nodes if _is_made(node, classes)]
    assigned = [(node.value, _names(node.targets)) for node in nodes if isinstance(node, ast.Assign)]
    made = {name for value, names in assigned if _is_made(value, classes) for name in names}
    changed = [owner for node in nodes for owner in _changed(node)]
    for owner in changed:
        if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) and owner.value.id in made:
            raise UnusableTests(f"the tests change '{ast.unparse(owner)}', which is in the other sandbox")
    given = {name for make in makes for name in _names([*make.args, *(word.value for word in make.keywords)])}
    for value, names in assigned:
        empty = ast.unparse(value) in ("[]", "{}", "set()", "list()", "dict()")
        watched = names if empty else names & _names(changed)
        if isinstance(value, ast.List | ast.Dict | ast.Set | ast.Call) and watched & given:
            name = min(watched & given)
            raise UnusableTests(f"the tests give '{name}' to an object, and change it or watch it afterwards")


def _is_made(node: ast.AST, classes: set[str]) -> TypeGuard[ast.Call]:
    """Returns whether that makes an object of the solution."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes


def _names(nodes: Sequence[ast.expr]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _changed(node: ast.AST) -> list[ast.expr]:
    """Returns what a node changes in place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
        return [node.func.value]
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    targets = [node.target] if isinstance(node, ast.AugAssign) else targets
    return [target.value for target in targets if isinstance(target, ast.Subscript)]
