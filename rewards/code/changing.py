"""Finds where tests want answers of a solution to differ, and which names may have such answers.

Equal calls of a function within a test get the first answer (`guest.units.asking`), so that two different ones cannot
pass tests of what an answer has to be like. Here is what that leaves alone.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from grpo.rewards.code.syntax import called, called_by_name, find, literal, names_in

_UNEQUAL = ("assertNotEqual", "assertIsNot")


def given_names(body: Sequence[ast.AST]) -> set[str]:
    """Returns the names that only ever have values which stand in the tests."""
    values = [(node.targets, node.value) for node in find(body, ast.Assign)]
    values += [([node.target], node.iter) for node in find(body, ast.For)]
    given = [name for targets, value in values if literal(value) is not None for name in names_in(targets)]
    stored = names_in(body, ast.Store)
    return {name for name in given if stored.count(name) == given.count(name)}


def wants_unequal(nodes: Sequence[ast.AST], given: set[str]) -> bool:
    """Returns whether tests ask whether two answers are unequal, or for something that is true and then is not.

    What is made of `given` names alone is no answer.
    """

    def both(sides: Sequence[ast.expr]) -> bool:
        return not any(set(names_in(side)) <= given | vars(builtins).keys() for side in sides)

    turned = [each.operand for each in find(nodes, ast.UnaryOp) if isinstance(each.op, ast.Not)]
    for node in find(nodes, ast.Compare):
        unequal = isinstance(node.ops[0], ast.NotEq | ast.IsNot | ast.NotIn) or (
            node in turned and isinstance(node.ops[0], ast.Eq)
        )
        if unequal and both([node.left, node.comparators[0]]):
            return True
    if any(called(node) in _UNEQUAL and both(node.args[:2]) for node in find(nodes, ast.Call)):
        return True
    tests = [node.test for node in find(nodes, ast.Assert)]
    wanted = {ast.unparse(test) for test in tests}
    return any(isinstance(test, ast.UnaryOp) and ast.unparse(test.operand) in wanted for test in tests)


def asked_twice(body: Sequence[ast.AST]) -> set[str]:
    """Returns the calls, as texts, whose answers may differ.

    Tests list, add or compare two of them, give them names that they compare, or collect them in a loop.
    """
    listed: list[Any] = find(body, ast.List, ast.Tuple, ast.Set)
    groups: list[list[ast.expr]] = [node.elts for node in listed]
    groups += [[each for each in node.values if isinstance(each, ast.Call)] for node in find(body, ast.Dict)]
    groups += [[each for each in node.args if isinstance(each, ast.Call)] for node in find(body, ast.Call)]
    for node in find(body, ast.Compare):
        sides = [node.left, *node.comparators]
        groups += [sides] if len(set(map(ast.unparse, sides))) < len(sides) else []
    counts = [Counter(map(ast.unparse, find(group, ast.Call))) for group in groups]
    twice = {text for count in counts for text, often in count.items() if often > 1}
    collected: list[Any] = find(body, ast.ListComp, ast.SetComp, ast.GeneratorExp)
    twice |= {ast.unparse(node.elt) for node in collected}
    twice |= {ast.unparse(node.value) for node in find(body, ast.DictComp)}
    named: dict[str, set[str]] = {}
    for each in find(body, ast.Assign):
        named.setdefault(ast.unparse(each.value), set()).update(names_in(each.targets))
    compared = [set(names_in(node)) for node in find(body, ast.Compare, ast.BinOp, ast.Set, ast.List, ast.Tuple)]
    for both in find(body, ast.Compare, ast.BinOp):
        calls = set(map(ast.unparse, find(both, ast.Call)))
        twice |= {text for text, names in named.items() if text in calls and names & set(names_in(both))}
    sums = [node for node in find(body, ast.BinOp) if isinstance(node.op, ast.Add)]
    twice |= {ast.unparse(node.left) for node in sums if ast.unparse(node.left) == ast.unparse(node.right)}
    alone = [[value for value in node.values if isinstance(value, ast.Name)] for node in find(body, ast.BoolOp)]
    compared += [set(names_in(each)) for each in alone]
    return twice | {text for text, names in named.items() if any(len(names & both) > 1 for both in compared)}


def pinned_names(body: Sequence[ast.stmt]) -> set[str]:
    """Returns the names of which nothing is asked but whether they equal a known value, or are true."""
    pinned = {id(side) for node in find(body, ast.Compare) for side in pinned_sides(node)}
    tests: list[ast.expr] = [node.test for node in find(body, ast.Assert)]
    tests += [
        node.args[0] for node in find(body, ast.Call) if called(node) in ("assertTrue", "assertFalse") and node.args
    ]
    pinned |= {id(test.operand if isinstance(test, ast.UnaryOp) else test) for test in tests}
    loads = [node for node in find(body, ast.Name) if isinstance(node.ctx, ast.Load)]
    return set(names_in(body)) - {node.id for node in loads if id(node) not in pinned}


def assigned_once(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Returns the names that are given one value, with that value as it stood in the tests."""
    stored = names_in(body, ast.Store)
    single = [node for node in find(body, ast.Assign) if len(node.targets) == 1]
    values = {ast.unparse(node.targets[0]): copy.deepcopy(node.value) for node in single}
    return {name: value for name, value in values.items() if stored.count(name) == 1}


def pinned_sides(node: ast.Compare) -> list[ast.expr]:
    """Returns the side of a comparison that must equal a known value."""
    if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Eq | ast.Is):
        return []
    left, right = node.left, node.comparators[0]
    return [side for side, other in ((left, right), (right, left)) if literal(other) is not None]


def lone_methods(every: Sequence[ast.stmt], names: Collection[str]) -> set[str]:
    """Returns `s.f` for objects made without arguments of which tests use nothing but `f`: functions in disguise."""
    given = [node for node in find(every, ast.Assign) if called_by_name(node.value) in names and len(node.targets) == 1]
    empty = [
        node for node in given if isinstance(node.value, ast.Call) and not (node.value.args or node.value.keywords)
    ]
    made = {ast.unparse(node.targets[0]) for node in empty}
    used: dict[str, list[str]] = {}
    for node in find(every, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id in made:
            used.setdefault(node.value.id, []).append(node.attr)
    loads = names_in(every, ast.Load)
    return {
        f"{name}.{attributes[0]}"
        for name, attributes in used.items()
        if len(set(attributes)) == 1 and loads.count(name) == len(attributes)
    }


def related_names(every: Sequence[ast.stmt], names: Collection[str]) -> set[str]:
    """Returns the names that stand in a statement with the solution, or with another such name."""
    heads: list[Any] = [[node.target, node.iter] for node in find(every, ast.For, ast.AsyncFor)]  # type: ignore[attr-defined]
    heads += [node.items for node in find(every, ast.With, ast.AsyncWith)]  # type: ignore[attr-defined]
    groups = [
        set(names_in(each)) - vars(builtins).keys()
        for each in (*find(every, ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr), *heads)
    ]
    related, before = set(names), 0
    while before < len(related):
        before = len(related)
        related.update(*(group for group in groups if group & related))
    return related
