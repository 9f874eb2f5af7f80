"""Decides whether a solution must answer equal calls equally, and finds the assertions that test it.

Two answers to equal calls can pass tests that no single answer passes: `f(n) ** 2 <= n`, `(f(n) + 1) ** 2 > n`. If the
tests show no sign of state or randomness, they run a second time with the first answers to what was asked
(`guest.units.remembering`). An assertion that a single answer passes (`f(3) == 5`) gains nothing by others, and may be
of a program with a state; it does not count there.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from grpo.rewards.code.assertions import asserted_condition, expects
from grpo.rewards.code.syntax import FUNCTIONS, assigned_once, bindings, called, called_by_name, find, literal, names_in

# What a function may read beside its arguments.
_SURROUNDINGS = re.compile(
    r"patch|mock|environ|capsys|capfd|caplog|tmp_?path|tmpdir|chdir|stdin|stdout|seed\(|freeze|xfail|expectedFailure|Logs\(|[Ww]arns\("
)
_CLOSE = ("isclose", "__near__")


def has_state(every: Sequence[ast.stmt], names: Collection[str]) -> bool:
    """Returns whether tests show that what a function answers may depend on more than its arguments.

    They do where they call one without arguments, or for what it does; where they ask whether two answers to the same
    call differ, or collect some; where they want two different things of one call; and where two objects are to be one.
    `every`: the tests as they came. `names`: the globals of the solution.
    """
    methods = lone_methods(every, names)
    calls = [
        call for call in find(every, ast.Call) if called_by_name(call) in names or ast.unparse(call.func) in methods
    ]
    calls = [call for call in calls if not called(call)[:1].isupper()]
    text = "\n".join(map(ast.unparse, every))
    return (
        any(not (call.args or call.keywords) for call in calls)
        or any(call in calls for call in _acting(every))
        or _SURROUNDINGS.search(text) is not None
        or _asks_for_others(every, calls)
        or _contradicts(every, calls)
        or any(map(_is_of_identity, find(every, ast.Compare)))
    )


def _is_of_identity(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    return any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops) and not any(
        isinstance(side, ast.Constant) for side in sides
    )


def _acting(every: Sequence[ast.stmt]) -> list[ast.expr]:
    """What is evaluated for its effect: its value is unused, and no exception is expected of it."""
    blocks: list[Any] = find(every, ast.With, ast.AsyncWith)
    expecting: list[Any] = [node for node in blocks if any(expects(item.context_expr) for item in node.items)]
    expecting += [node for node in find(every, ast.Try) if node.handlers]
    raising = {id(inner) for node in expecting for statement in node.body for inner in ast.walk(statement)}
    loaded = set(names_in(every, ast.Load))
    values: list[ast.expr] = [node.value for node in find(every, ast.Expr) if id(node) not in raising]
    unread = [node for node in find(every, ast.Assign) if not set(names_in(node.targets)) & loaded]
    values += [node.value for node in unread if id(node) not in raising]
    return [value.value if isinstance(value, ast.Await) else value for value in values]


def _asks_for_others(every: Sequence[ast.stmt], calls: Sequence[ast.Call]) -> bool:
    """Whether tests compare, add or collect several answers to one call, or want answers to follow each other.

    Two answers within one condition do not count that are not compared themselves: `f(n) ** 2 <= n < (f(n) + 1) ** 2`.
    """
    texts = {ast.unparse(call) for call in calls}
    once = {name: ast.unparse(value) for name, value in assigned_once(every).items()}
    once = {name: text for name, text in once.items() if text in texts}

    def several(nodes: Sequence[ast.AST], direct: bool) -> bool:
        within = nodes if direct else find(nodes, ast.expr)
        asked = Counter(text for text in map(ast.unparse, within) if text in texts)
        asked.update(once[name] for name in {*names_in(nodes)} if name in once)
        return any(often > 1 for often in asked.values())

    listed: list[Any] = find(every, ast.List, ast.Tuple, ast.Set)
    groups = [node.elts for node in listed] + [node.args for node in find(every, ast.Call) if node not in calls]
    groups += [[node.left, node.right] for node in find(every, ast.BinOp) if isinstance(node.op, ast.Add)]
    for node in find(every, ast.Compare):
        sides = [node.left, *node.comparators]
        groups += [sides[at : at + 2] for at, each in enumerate(node.ops) if not isinstance(each, ast.Eq)]
        if set(names_in(sides)) & once.keys() and several(sides, False):
            return True
        if isinstance(node.ops[0], ast.Eq) and len(sides) == 2 and _follow(sides, calls, assigned_once(every)):
            return True
    turned = [node.operand for node in find(conditions(every), ast.UnaryOp) if isinstance(node.op, ast.Not)]
    groups += [[node.left, *node.comparators] for node in find(turned, ast.Compare)]
    return any(map(functools.partial(_collects, every, calls), find(every, ast.stmt, ast.expr))) or any(
        several(group, True) for group in groups
    )


def _collects(every: Sequence[ast.stmt], calls: Sequence[ast.Call], loop: Any) -> bool:
    """Whether the node is a loop that makes the same call each time, and does more than assert."""
    parts = [loop.elt] if hasattr(loop, "elt") else [loop.key, loop.value] if isinstance(loop, ast.DictComp) else []
    if isinstance(loop, ast.For | ast.AsyncFor | ast.While):
        parts = [each for each in loop.body if not isinstance(each, ast.Assert)]
    if not parts:
        return False
    targets = set(names_in(loop, ast.Store))
    if any(
        targets & {*names_in(each)} for part in parts if isinstance(part, ast.expr) for each in find(part, ast.Compare)
    ):
        return False
    texts = {called(call) for call in calls}
    helpers: list[Any] = [
        node for node in find(every, *FUNCTIONS) if any(called(call) in texts for call in find(node, ast.Call))
    ]
    asking = {node.name for node in helpers}
    return any(
        (call in calls or called_by_name(call) in asking) and not targets & {*names_in(call)}
        for call in find(parts, ast.Call)
    )


def _follow(sides: Sequence[ast.expr], calls: Sequence[ast.Call], values: Mapping[str, ast.expr]) -> bool:
    asked = [
        [call for name in names_in(side) for call in find(values.get(name, ast.Constant(0)), ast.Call)]
        + find(side, ast.Call)
        for side in sides
    ]
    functions = [{called(call) for call in each} & {called(call) for call in calls} for each in asked]
    sums = [side for side in sides if isinstance(side, ast.BinOp) and isinstance(side.right, ast.Constant)]
    return bool(sums) and bool(functions[0] & functions[1])


def _contradicts(every: Sequence[ast.stmt], calls: Sequence[ast.Call]) -> bool:
    stored = Counter(names_in(every, ast.Store))
    wanted: dict[str, set[str]] = {}
    for test in conditions(every):
        denied = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        test = test.operand if isinstance(test, ast.UnaryOp) and denied else test
        if not any(call in calls for call in find(test, ast.Call)) or any(stored[name] > 1 for name in names_in(test)):
            continue
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            negative = isinstance(test.ops[0], ast.NotIn | ast.NotEq)
            value = literal(test.comparators[0])
            if isinstance(test.ops[0], ast.Eq) and value is not None:
                wanted.setdefault(ast.unparse(test.left), set()).add(repr(value))
                continue
            if negative or isinstance(test.ops[0], ast.In):
                key = f"{ast.unparse(test.left)} in {ast.unparse(test.comparators[0])}"
                wanted.setdefault(key, set()).add(str(negative != denied))
                continue
        wanted.setdefault(ast.unparse(test), set()).add(str(denied))
    return any(len(values) > 1 for values in wanted.values())


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def conditions(every: Sequence[ast.stmt]) -> list[ast.expr]:
    """Returns the conditions that tests assert."""
    methods = [asserted_condition(node.value) for node in find(every, ast.Expr) if isinstance(node.value, ast.Call)]
    return [node.test for node in find(every, ast.Assert)] + [each for each in methods if each is not None]


@functools.lru_cache(maxsize=4096)
def open_tests(source: str, names: tuple[str, ...]) -> str:
    """Returns prepared tests (`source`) without the assertions that a single answer passes; "" if no other is left."""
    every = ast.parse(source).body
    change = _Opening(every, names)
    done = [change.visit(node) for node in every]
    return ast.unparse(ast.fix_missing_locations(ast.Module(done, []))) if change.asks else ""


class _Opening(ast.NodeTransformer):
    """Removes assertions that a single answer passes; `asks`: others are left that are of answers."""

    def __init__(self, every: Sequence[ast.stmt], names: Collection[str]) -> None:
        self._names = names
        self.asks = False
        helpers: dict[str, Any] = {node.name: node for node in find(every, *FUNCTIONS)}  # type: ignore[attr-defined]
        bound = [(names_in(targets), value, of_items) for targets, value, of_items in bindings(every)]
        values = [(names, value) for names, value, of_items in bound if not of_items]
        items = [(names, value) for names, value, of_items in bound if of_items]
        for call in find(every, ast.Call):
            if called(call) in ("append", "add", "extend") and isinstance(call.func, ast.Attribute):
                values += [(names_in(call.func.value), each) for each in call.args]
            elif called_by_name(call) in helpers:
                parameters = [each.arg for each in find(helpers[called(call)].args, ast.arg)]
                items += [(parameters, each) for each in call.args]
        returned = [(name, each.value) for name, helper in helpers.items() for each in find(helper, ast.Return)]
        items += [([name], value) for name, value in returned if value]
        self._derived: set[str] = set()  # names of what is made of answers
        self._direct: set[str] = set()  # of these, names of answers, and collections of answers
        for _ in range(len(values) + len(items)):
            before = len(self._derived)
            self._derived |= {name for names, value in values + items if not self._is_given(value) for name in names}
            if len(self._derived) == before:
                break
        self._direct = self._derived - {name for names, _ in items for name in names}
        for _ in values:
            made = {name for names, value in values if not self._is_direct(value, True) for name in names}
            if not made & self._direct:
                break
            self._direct -= made

    def _is_answer(self, node: ast.AST) -> bool:
        asked = isinstance(node, ast.Call) and isinstance(node.func, ast.Constant) and node.func.value == "__ask__"
        return asked or called_by_name(node) in self._names

    def _is_given(self, node: ast.AST) -> bool:
        asks = any(map(self._is_answer, find(node, ast.Call)))
        return not asks and not set(names_in(node)) & {*self._derived, *self._names}

    def _is_direct(self, node: ast.AST, or_given: bool = False) -> bool:
        """Whether an expression is an answer, or a collection of answers."""
        if isinstance(node, ast.List | ast.Tuple | ast.Dict):
            parts = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
            return all(each is None or self._is_direct(each, True) for each in parts)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            return self._is_direct(node.value if isinstance(node, ast.DictComp) else node.elt, or_given)
        if isinstance(node, ast.Await):
            return self._is_direct(node.value)
        if isinstance(node, ast.Name):
            return node.id in self._direct or (or_given and self._is_given(node))
        if isinstance(node, ast.Call) and self._is_answer(node):
            return True
        if called(node) in ("list", "tuple") and isinstance(node, ast.Call):
            return all(self._is_direct(each) for each in node.args)
        return or_given and self._is_given(node)

    def _is_of_one(self, test: ast.expr) -> bool:
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._is_direct(operand)
            case ast.Compare(ops=[ast.Eq() | ast.Is()], left=left, comparators=[right]):
                return any(
                    self._is_direct(one) and self._is_given(other) for one, other in ((left, right), (right, left))
                )
            case ast.Compare(ops=[ast.Lt() | ast.LtE()], left=ast.Call(args=[ast.BinOp() as difference])):
                answers = [term for term in _terms(difference) if not self._is_given(term)]
                return called(test.left) == "abs" and len(answers) == 1 and self._is_direct(answers[0])
            case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as loop]):
                return self._is_of_one(loop.elt)
            case ast.Call(func=ast.Constant(value="__equal__"), keywords=sides):
                return self._is_of_one(ast.Compare(sides[1].value, [ast.Eq()], [sides[0].value]))
            case ast.Call() if called(test) in _CLOSE and len(test.args) > 1:
                return self._is_direct(test.args[0]) and self._is_given(test.args[1])
        return self._is_direct(test)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Keeps the conditions that several answers pass; the others are still evaluated."""
        judged = isinstance(node.test, ast.Call) and isinstance(node.test.func, ast.Constant)
        test = node.test.args[0] if judged else node.test  # type: ignore[attr-defined]
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        left = [each for each in parts if not self._is_given(each) and not self._is_of_one(each)]
        self.asks = self.asks or bool(left)
        if not left:
            return ast.Expr(test)
        return ast.Assert(ast.BoolOp(ast.And(), left) if len(left) > 1 else left[0], None)


def given_names(body: Sequence[ast.AST]) -> set[str]:
    """Returns the names that only ever have values which stand in the tests."""
    given = [name for targets, value, _ in bindings(body) if literal(value) for name in names_in(targets)]
    stored = names_in(body, ast.Store)
    return {name for name in given if stored.count(name) == given.count(name)}


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
