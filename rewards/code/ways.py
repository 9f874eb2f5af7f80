"""Finds ways to alter an asserted condition so that it no longer holds: `a == 5` becomes `a == 6`.

It alters what the tests compare with the solution's answers, never what they give to the solution; without such a value
in the condition, it asks for the contrary.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import math
import random
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo.rewards.code.assertions import denies
from grpo.rewards.code.guest.near import NEAR, far, near
from grpo.rewards.code.syntax import assigned_once, called, called_by_name, find, judge_call, names_in, words

_SECRET = secrets.token_hex(8)
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CONTRARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
    ast.Lt: ast.Gt,
    ast.LtE: ast.Gt,
    ast.Gt: ast.Lt,
    ast.GtE: ast.Lt,
}
_BY_NAME: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq,
    "ne": ast.NotEq,
    "lt": ast.Lt,
    "le": ast.LtE,
    "gt": ast.Gt,
    "ge": ast.GtE,
    "is_": ast.Is,
    "is_not": ast.IsNot,
}
# What makes a value of the values it is given, of the first of them, and what compares two.
_OF_ALL = words("set frozenset list tuple dict bytes bytearray complex Fraction Counter OrderedDict deque call")
_DATES = words("date datetime time timedelta")
_OF_FIRST = words("float str Decimal approx array")
_MAKING = _OF_ALL | _OF_FIRST | _DATES
_LIBRARIES = words("pytest datetime dt decimal fractions collections math np numpy mock unittest")
_SMALL = words("abs fabs hypot square sqrt round assertAlmostEqual")
_CLOSE = words("isclose allclose array_equal")
_NUMBER_OF = words("int float complex abs round len bool")
_CONSTANTS = ("math.pi", "math.e", "math.tau")
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_PARTS = (*_DISPLAYS, ast.Constant, ast.UnaryOp, ast.BinOp, ast.Starred, ast.Call, ast.Attribute, ast.Name)
_NUMBERS = (int, float)
_TOLERANCES = ("abs", "rel", "delta", "places", "abs_tol", "rel_tol")
_TRIES = 20
_MOST_CONTRARY = 3
RUNS = 6


@dataclass(frozen=True, slots=True)
class Way:
    """One way to alter an assertion.

    `make`: returns the altered expression or statement, given how often this way has been used before. `kind`: "" where
    no right solution passes; "~" where one may in half of the runs, as numbers may equal others; "?" where that is so,
    and only objects of the solution count; "^" where one may in any but all runs.
    """

    make: Callable[[int], Any]
    kind: str = ""

    def then(self, change: Callable[[Any], Any]) -> Way:
        """Returns a way whose altered node is changed further."""
        return replace(self, make=lambda trial: change(self.make(trial)))


def fixed(altered: Any, kind: str = "") -> Way:
    """Returns the way that always leads to the same altered node."""
    return Way(lambda _: altered, kind)


def seen(node: ast.expr, asks: bool = True) -> ast.Call:
    """Returns an expression whose value the judge sees; with `asks`, that is the value that is asked."""
    return judge_call("__seen__", node, asks)


def scheduled(ways: Sequence[Way], run: int) -> tuple[int, int]:
    """Returns which of the ways is used in a run, and how often it was used before."""
    often = [at for at, way in enumerate(ways) if way.kind]
    once = [at for at, way in enumerate(ways) if not way.kind][: 1 if often else _MOST_CONTRARY]
    slots = [*once, *(often[at % len(often)] for at in range(RUNS - len(once)))] if often else once
    if often and once:
        slots[:2] = slots[1::-1]  # what objects there are is seen in the first runs
    at = run % len(slots)
    return slots[at], slots[:at].count(slots[at]) + run // len(slots)


class Ways:
    """Finds the ways to alter the conditions of tests (`every`); `names`: the globals of the solution.

    `leaf`: which value the last alteration was of; -1 where it was of none that stands in the condition. `is_near`: the
    other value was near the expected one.
    """

    def __init__(self, every: Sequence[ast.stmt], names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._standing = {repr(node.value) for node in find(every, ast.Constant)}
        self._denies_equal = denies(every, ast.NotEq, ast.Eq, "assertNotEqual")
        self._denies_item = denies(every, ast.NotIn, ast.In, "assertNotIn")
        self._assigned = assigned_once(every)
        self._rng = random.Random()
        self.leaf, self.is_near = -1, False

    def begin(self, place: int, run: int) -> None:
        """Draws what follows for an assertion and a run."""
        self._rng = random.Random(f"{_SECRET} {place} {run}")
        self.leaf, self.is_near = -1, run in NEAR

    def of(self, test: ast.expr) -> list[Way]:
        """Returns the ways to alter a condition that holds, so that it does not hold."""
        spelled = spelled_out(test)
        return [*self._main(spelled), *self.levers(test), *self._inner(spelled)]

    def _main(self, test: ast.expr) -> list[Way]:
        contrary = [fixed(ast.UnaryOp(ast.Not(), seen(test)))]
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                return [way.then(_among(values, at)) for at, value in enumerate(values) for way in self._main(value)]
            case ast.BoolOp(values=values):
                every = [self.leaves_of(value, [value]) if _is_equality(value) else [] for value in values]
                if all(every):
                    return [Way(lambda trial: ast.BoolOp(ast.Or(), [ways[0].make(trial) for ways in every]), "~")]
            case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[ast.NotEq()], left=left, comparators=[right])):
                equal = ast.Compare(left, [ast.Eq()], [right])
                return [way.then(_not_unequal) for way in self._equality(equal, left, right)]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return [fixed(seen(operand)), *self._at_both_ends(operand, turned=True)]
            case ast.Call(func=ast.Constant(value="__equal__"), keywords=[right, left]):
                return self._main(ast.Compare(left.value, [ast.Eq()], [right.value]))
            case ast.Compare(ops=[ast.Eq()], left=left, comparators=[right]):
                return self._equality(test, left, right, holds=True)
            case ast.Compare(ops=[ast.In()], left=left, comparators=[right]):
                return self._membership(left, right)
            case ast.Compare(ops=ops, left=left, comparators=right) if _can_be_turned(ops):
                if isinstance(ops[0], ast.LtE | ast.GtE) and not any(map(self._is_expected, [left, *right])):
                    return contrary
                contraries = [[_CONTRARY[type(each)]() for each in ops]]
                if isinstance(ops[0], ast.Lt | ast.Gt):  # a < b, which is neither a > b nor a >= b
                    contraries.append([ast.GtE() if isinstance(each, ast.Lt | ast.LtE) else ast.LtE() for each in ops])
                turned: list[ast.expr] = [ast.Compare(seen(left), each, [*map(seen, right)]) for each in contraries]
                if (
                    len(ops) == 1
                    and isinstance(ops[0], ast.Lt | ast.Gt)
                    and not find([left, *right], ast.Call, ast.Constant)
                ):
                    turned.append(ast.Compare(seen(right[0]), ops, [seen(left)]))
                if _only_asks(test):
                    asked = ast.Compare(seen(left), ops, [*map(seen, right)])
                    again = _not(ast.BoolOp(ast.And(), [asked] * self._rng.choice((2, 3))))
                    turned[0] = ast.BoolOp(ast.Or(), [turned[0], again])
                return [*map(fixed, turned), *self._at_both_ends(test)]
            case ast.Compare(ops=ops, comparators=right):
                sides = [side for operator, side in zip(ops, right, strict=True) if isinstance(operator, ast.Eq)]
                return self.leaves_of(test, sides, is_near=True) or contrary
            case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as loop]):
                return [
                    *contrary,
                    *(way.then(lambda altered: _all_of(test, loop, altered)) for way in self._main(loop.elt)),
                ]
            case ast.Call(func=ast.Name(id="all"), args=[ast.Call(func=ast.Name(id="map"), args=args)]):
                return [*contrary, *self.leaves_of(test, args[1:], is_near=True)]
            case ast.Call() if called(test) in _CLOSE:
                return [way.then(seen) for way in self.leaves_of(test, test.args[::-1])] or contrary
        return contrary

    def _inner(self, test: ast.expr) -> list[Way]:
        """The way to alter the equalities within another condition: none of them may hold for objects."""
        known = isinstance(test, ast.UnaryOp) or (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And))
        nodes = (
            [] if known or find(test, ast.Lambda) else [node for node in find(test, ast.Compare) if node is not test]
        )
        equal = [node for node in nodes if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)]
        inside = {id(part) for node in equal for part in ast.walk(node) if part is not node}
        ways = [
            (node, self._equality(node, node.left, node.comparators[0])) for node in equal if id(node) not in inside
        ]
        ways = [(node, [way for way in each if way.kind == "~"][:1]) for node, each in ways]

        def make(trial: int) -> ast.expr:
            others = {id(node): judge_call("__yes__", way.make(trial)) for node, each in ways for way in each}
            altered: ast.expr = copy.deepcopy(test, others)
            return altered

        return [Way(make, "?")] if any(each for _, each in ways) else []

    def _equality(self, test: ast.Compare, left: ast.expr, right: ast.expr, *, holds: bool = False) -> list[Way]:
        """The ways to alter an equality; where it surely `holds`, it is asked as it was, too."""
        of_others = self._made_of_others(left, right)
        if self._denies_equal and (self._is_made(left) or self._is_made(right)):
            equal = ast.Compare(seen(left), [ast.Eq()], [seen(right)])
            return [fixed(_not(equal)), *of_others]
        for side in (right, left):
            ways = (
                self.leaves_of(test, [side], is_near=True)
                if self._is_expected(side) or isinstance(side, _DISPLAYS)
                else []
            )
            if ways and holds and self._is_expected(side):
                return [way.then(functools.partial(_asking, side, turned=side is left)) for way in ways]
            if ways:
                return [way.then(_seeing_left if side is right else _seeing_right) for way in ways]
        both = judge_call("__first__", left), judge_call("__second__", right)
        pair = judge_call("__both__", left, right) if holds else ast.Compare(both[0], [ast.Eq()], [both[1]])
        return [fixed(pair, "~"), *of_others]

    def _made_of_others(self, left: ast.expr, right: ast.expr) -> list[Way]:
        """The way to compare one side with objects made like the other one, of other values alone."""
        for side, other in ((right, left), (left, right)):
            made = self._assigned.get(side.id, side) if isinstance(side, ast.Name) else side
            leaves = self._given_to_classes(made)
            if leaves:
                return [Way(functools.partial(self._with_others, other, made, leaves), "^")]
        return []

    def _with_others(self, left: ast.expr, made: ast.expr, leaves: list[ast.expr], trial: int) -> ast.expr:
        self.is_near = trial % RUNS in NEAR
        others = {id(leaf): self._other(_value(leaf), trial + at, made, True) for at, leaf in enumerate(leaves)}
        return ast.Compare(seen(left), [ast.Eq()], [seen(copy.deepcopy(made, others))])

    def _given_to_classes(self, node: ast.expr) -> list[ast.expr] | None:
        """The values of which objects of the solution are made; None if one is made of anything else."""
        if isinstance(node, ast.List | ast.Tuple | ast.Dict):
            parts = node.values if isinstance(node, ast.Dict) else node.elts
        elif isinstance(node, ast.Call) and ast.unparse(_function(node)).partition(".")[0] in self._classes():
            parts = [*node.args, *(each.value for each in node.keywords)]
        else:
            return [node] if _value(node) is not None else None
        leaves = [self._given_to_classes(each) for each in parts]
        return None if None in leaves or not leaves else [leaf for each in leaves for leaf in each or ()]

    def _classes(self) -> set[str]:
        return {name for name in self._names if name[:1].isupper()}

    def _is_made(self, node: ast.expr) -> bool:
        """Whether an expression makes objects of the solution's classes of values that stand in it."""
        node = self._assigned.get(node.id, node) if isinstance(node, ast.Name) else node
        classes, calls = self._classes(), find(node, ast.Call)
        own = all(ast.unparse(_function(call)) in classes for call in calls)
        others = set(names_in(node)) - classes - vars(builtins).keys()
        return bool(calls) and own and not others and not find(node, ast.Lambda, ast.Attribute)

    def _membership(self, left: ast.expr, right: ast.expr) -> list[Way]:
        contrary = fixed(ast.Compare(seen(left), [ast.NotIn()], [seen(right)]))
        if isinstance(left, ast.Constant):
            of_text = type(left.value) is str
            item = self._strange() if of_text else ast.parse("object()", mode="eval").body
            strange = fixed(ast.Compare(item, [ast.In()], [seen(right)]), "~" if of_text else "?")
            return [contrary] if self._denies_item else [contrary, strange]
        if isinstance(right, ast.List | ast.Tuple | ast.Set) and self._is_expected(right):
            return [fixed(ast.Compare(seen(left), [ast.In()], [ast.List([self._strange()], ast.Load())]), "~")]
        item = judge_call("__stranger__", left, right) if isinstance(right, ast.Name) else seen(left, False)
        others = ast.Compare(item, [ast.In()], [judge_call("__strangers__", right)])
        return [contrary, fixed(others, "?")]

    def _at_both_ends(self, test: ast.expr, *, turned: bool = False) -> list[Way]:
        """The way to ask whether what is not above, or below, a number is below and above all of them."""
        if not isinstance(test, ast.Compare) or not all(isinstance(each, _ORDERS) for each in test.ops):
            return []
        sides = [each for each in (test.left, *test.comparators) if not isinstance(_value(each), _NUMBERS)]
        strict = isinstance(test.ops[0], ast.Lt | ast.Gt) != turned
        if len(sides) != 1 or strict or called(sides[0]) in _SMALL:
            return []

        def make(_: int) -> ast.expr:
            end, name = self._rng.randrange(10**6, 10**9), "__asked__"
            asked = ast.NamedExpr(ast.Name(name, ast.Store()), seen(sides[0], False))
            above = ast.Compare(asked, [ast.GtE()], [ast.Constant(end)])
            below = ast.Compare(ast.Name(name, ast.Load()), [ast.LtE()], [ast.Constant(-end)])
            return _every([above, below])

        return [Way(make, "?")]

    def levers(self, test: Any) -> list[Way]:
        """Returns the ways to alter a number of the tests in a difference, or quotient, that is to be small."""
        calls = [node for node in find(test, ast.Call) if called(node) in _SMALL]
        squares = [node for node in find(test, ast.BinOp) if isinstance(node.op, ast.Pow)]
        between = test.comparators[:1] if isinstance(test, ast.Compare) and len(test.ops) == 2 else []
        return [way for node in find([*calls, *squares, *between], ast.BinOp) for way in self._lever(test, node)]

    def _lever(self, test: Any, node: ast.BinOp) -> list[Way]:
        differences = [each.left for each in find(test, ast.BinOp) if isinstance(each.op, ast.Sub)]
        of_one = [each for each in find(differences, ast.BinOp) if isinstance(each.op, ast.Div)]  # a / b - 1
        if (not isinstance(node.op, ast.Sub) and node not in of_one) or node.left in of_one:
            return []
        for side, other in ((node.right, node.left), (node.left, node.right)):
            if self._is_expected(side) and not self._is_expected(other):
                seeing = seen(other, False)
                part = ast.BinOp(*((seeing, node.op, side) if side is node.right else (side, node.op, seeing)))
                ways = self.leaves_of(part, [side], is_near=True, signed=True)
                return [replace(way.then(lambda altered: _replaced(test, node, altered)), kind="?") for way in ways]
        both = judge_call("__first__", node.left), judge_call("__second__", node.right, True, True)
        other = _replaced(test, node, ast.BinOp(both[0], node.op, both[1]))
        return [fixed(other, "?")] if isinstance(node.op, ast.Sub) else []

    def leaves_of(
        self, whole: Any, within: Iterable[ast.expr], *, is_near: bool = False, signed: bool = False
    ) -> list[Way]:
        """Returns the way to alter the values in nodes of an assertion: one each time; none where there are none.

        `whole`: what is copied. `within`: the nodes. `is_near`: also by values near the expected one, as there is no
        tolerance. `signed`: also by numbers below 0.
        """
        leaves = [leaf for node in within for leaf in self._leaves(node)]
        if not leaves:
            return []
        calls = find(whole, ast.Call)
        numbers_in = [number for number in map(_value, find(whole, ast.expr)) if type(number) in _NUMBERS]
        tolerance = max((_tolerance(each, max(map(abs, numbers_in), default=0)) for each in calls), default=0.0)
        dated = {id(part) for each in calls if called(each) in _DATES for part in ast.walk(each)}
        order = list(range(len(leaves)))
        random.Random(_SECRET).shuffle(order)

        def make(trial: int) -> Any:
            at = order[trial % len(order)]
            leaf = leaves[at]
            if id(leaf) in dated:  # where a month has 12 numbers
                other: ast.expr = ast.Constant(near(_value(leaf), self._rng, trial))
            else:
                self.is_near = is_near and trial % RUNS in NEAR
                other = self._other(_value(leaf), trial // len(order), whole, signed)
                if (
                    self.is_near
                    and type(_value(leaf)) in _NUMBERS
                    and abs(_value(other) - _value(leaf)) <= 2 * tolerance
                ):
                    self.is_near = False
                    other = self._other(_value(leaf), trial // len(order), whole, signed)
            self.leaf = at
            return _replaced(whole, leaf, other)

        return [Way(make, "~")]

    def _leaves(self, node: ast.expr) -> Iterator[ast.expr]:
        """The values that stand in what tests expect, but not in what they give to the solution."""
        if type(_value(node)) in (bool, int, float, str, bytes, complex) or _is_none(node):
            yield node
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                inner = list(self._leaves(value))
                yield from inner or (self._leaves(key) if key is not None else ())
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            for each in node.elts:
                yield from self._leaves(each)
        elif isinstance(node, ast.Compare):
            for each in (node.left, *node.comparators):
                yield from self._leaves(each) if self._is_expected(each) else ()
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            yield from (*self._leaves(node.left), *self._leaves(node.right)) if self._is_expected(node) else ()
        elif isinstance(node, ast.Call) and self._makes(node):
            named = [] if called(node) in _OF_FIRST else [each.value for each in node.keywords]
            for each in (*node.args[: 1 if called(node) in _OF_FIRST else None], *named):
                yield from self._leaves(each)

    def _makes(self, call: ast.Call) -> bool:
        root = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        library = isinstance(root, ast.Name) and (root is call.func or root.id in _LIBRARIES)
        return library and called(call) in _MAKING and called_by_name(call) not in self._names

    def _is_expected(self, node: ast.expr) -> bool:
        calls = find(node, ast.Call)
        if not all(map(self._makes, calls)):
            return False
        known = {id(part) for each in calls for part in ast.walk(each.func)}
        known |= {
            id(part) for each in find(node, ast.Attribute) if ast.unparse(each) in _CONSTANTS for part in ast.walk(each)
        }
        parts = [each for each in ast.walk(node) if isinstance(each, ast.expr) and id(each) not in known]
        return all(isinstance(each, _PARTS) and not isinstance(each, ast.Name | ast.Attribute) for each in parts)

    def _other(self, value: Any, trial: int, whole: Any, signed: bool) -> ast.expr:
        numbers = [number for number in map(_value, find(whole, ast.expr)) if type(number) in _NUMBERS]
        most = max(map(abs, numbers), default=0)
        if value is None:
            return ast.Constant(self._rng.randrange(17, 99))
        for _ in range(_TRIES):
            change = near if self.is_near else functools.partial(far, most=most)
            other = change(value, self._rng, trial, signed=signed)
            if repr(other) not in self._standing:
                break
        return ast.parse(repr(other), mode="eval").body

    def _strange(self) -> ast.expr:
        """An item that only a container of everything has."""
        return ast.Constant("".join(self._rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(9)))


class _SpelledOut(ast.NodeTransformer):
    """Writes `a == b` for `operator.eq(a, b)`, `a.__eq__(b)` and `(a == b) is True`."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name, function = called(node), node.func
        if isinstance(function, ast.Constant):  # of the judge
            return node
        by_method = isinstance(function, ast.Attribute) and name.startswith("__") and name.endswith("__")
        of_operator = isinstance(function, ast.Name) or ast.unparse(getattr(function, "value", node)) in (
            "operator",
            "op",
        )
        args = [function.value, *node.args] if by_method else node.args if of_operator else []  # type: ignore[attr-defined]
        name = name.strip("_") if by_method else name
        if len(args) != 2 or node.keywords:
            return node
        if name == "contains":
            return ast.Compare(args[1], [ast.In()], [args[0]])
        return ast.Compare(args[0], [_BY_NAME[name]()], [args[1]]) if name in _BY_NAME else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.Eq) and isinstance(node.left, ast.Compare):
            if ast.unparse(node.comparators[0]) == "True":
                return node.left
            if ast.unparse(node.comparators[0]) == "False":
                return ast.UnaryOp(ast.Not(), node.left)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node


def spelled_out(test: ast.expr) -> ast.expr:
    """Returns a condition with operators in place of what stands for them."""
    if "NotImplemented" in names_in(test):
        return test
    spelled: ast.expr = _SpelledOut().visit(copy.deepcopy(test))
    return spelled


def _replaced(whole: Any, part: ast.AST, other: ast.AST) -> Any:
    return copy.deepcopy(whole, {id(part): other})


def _seeing_left(altered: Any) -> Any:
    altered.left = seen(altered.left)
    return altered


def _seeing_right(altered: Any) -> Any:
    altered.comparators = [seen(altered.comparators[0])]
    return altered


def _asking(expected: ast.expr, altered: Any, *, turned: bool) -> ast.Call:
    value, other = altered.left, altered.comparators[0]
    value, other = (other, value) if turned else (value, other)
    return judge_call("__asks__", seen(value), copy.deepcopy(expected), other, turned)


def _not(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _not_unequal(altered: Any) -> Any:
    """`not a != b` for `a == b`, and for the contrary of that the contrary."""
    if isinstance(altered, ast.UnaryOp):
        return _not(_not_unequal(altered.operand))
    return _not(ast.Compare(altered.left, [ast.NotEq()], altered.comparators))


def _among(values: list[ast.expr], at: int) -> Callable[[ast.expr], ast.Call]:
    """What asks for another condition in place of one of several that are to hold; all are asked, in their order."""
    return lambda altered: _every([*values[:at], altered, *values[at + 1 :]])


def _every(values: list[ast.expr]) -> ast.Call:
    """Asks each condition, as it may change something."""
    return judge_call("__every__", *(_not(_not(value)) for value in values))


def _all_of(test: ast.Call, loop: Any, altered: ast.expr) -> ast.Call:
    """Asks for each item, as that may change something."""
    return ast.Call(test.func, [ast.ListComp(altered, loop.generators)], [])


def _can_be_turned(operators: Sequence[ast.cmpop]) -> bool:
    orders = all(isinstance(each, _ORDERS) for each in operators)
    return all(type(each) in _CONTRARY for each in operators) and (orders or len(operators) == 1)


def _only_asks(test: ast.expr) -> bool:
    """Whether a condition asks objects for numbers, or by attributes, and so may be asked again."""
    names = {called_by_name(call) for call in find(test, ast.Call)}
    acts = find(test, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda, ast.comprehension)
    return not acts and all(name in _NUMBER_OF or name[:1].isupper() for name in names)


def _tolerance(call: ast.Call, most: float) -> float:
    """By what a comparison allows numbers of at most that size to differ, as far as that stands in it."""
    given = {each.arg: _value(each.value) for each in call.keywords if each.arg in _TOLERANCES}
    if called(call) == "assertAlmostEqual" and len(call.args) > 2:
        given["places"] = _value(call.args[2])
    if not all(type(value) in _NUMBERS for value in given.values()):
        return math.inf
    known: dict[Any, float] = {"places": math.inf, **given}
    absolute = max(known.get("abs", 0), known.get("delta", 0), known.get("abs_tol", 0))
    relative = max(known.get("rel", 0), known.get("rel_tol", 0)) * most
    return float(max(absolute, relative, 10.0 ** -known["places"]))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _function(call: ast.Call) -> ast.expr:
    return call.args[0] if isinstance(call.func, ast.Constant) and call.args else call.func


def _is_equality(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)
        return -value if isinstance(value, int | float | complex) else None
    return node.value if isinstance(node, ast.Constant) else None
