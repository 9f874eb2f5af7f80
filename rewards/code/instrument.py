"""Prepares parsed tests to be run unit by unit: the judge decides what they compare, and hears how each unit ended.

Expected values that stand in an assertion are taken out. The functions of the judge stand in the code as texts, which
`guest.together` replaces by the functions; see `guest.units` and `guest.questions` for what they do.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo.rewards.code.changing import (
    asked_twice,
    assigned_once,
    given_names,
    lone_methods,
    pinned_names,
    pinned_sides,
    related_names,
    taken_as_data,
    wants_unequal,
)
from grpo.rewards.code.syntax import FUNCTIONS, called, called_by_name, find, literal, mentions, names_in, words

_EQUAL = words("assertEqual assertEquals assertListEqual assertDictEqual assertTupleEqual assertSetEqual")
_LESS = {"assertLess": ast.Lt, "assertLessEqual": ast.LtE, "assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE}
_COMPARING: dict[str, type[ast.cmpop]] = {**dict.fromkeys(_EQUAL, ast.Eq), **_LESS, "assertIn": ast.In}
_TRUTHS = {"assertTrue": True, "assertFalse": False}
_EXPECTING = ("raises", "warns", "deprecated_call", "assertRaises", "assertWarns", "assertLogs", "assertNoLogs")
_FORGIVEN = r"\b(?:AssertionError|Exception|BaseException)\b"
_FORGIVES = rf"\({_FORGIVEN}"
_CONVERSIONS = words("int float complex str repr bytes len bool abs round hash")
_LOOKUPS = ("count", "index", "get")
_ORDERS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_LIKE = words("assertAlmostEqual assertAlmostEquals assertCountEqual assertSequenceEqual assertMultiLineEqual")
_SIMPLE = (ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


@dataclass(slots=True)
class Prepared:
    """What was taken out of tests, for the sides that run them and decide.

    Attributes:
        literals: the expected values, as `encode` writes them, which the tests do not hold any more.
        sure: for each unit, its assertions that are reached whenever it runs to its end.
        required: for each unit, the expected values that are compared in these assertions.
        reaching: the units all of whose assertions stand where they may not be reached.
        several: expected values of objects that are made alike, for which the tests expect others too.
    """

    literals: list[Any] = field(default_factory=list)
    sure: list[list[int]] = field(default_factory=list)
    required: list[list[int]] = field(default_factory=list)
    reaching: list[int] = field(default_factory=list)
    several: list[int] = field(default_factory=list)


class Instrument(ast.NodeTransformer):
    """Rewrites assertions, and calls whose answers may not change.

    Args:
        names: the globals of the solution, and what stands for them.
        every: the tests as they came.
        split: the solution runs elsewhere.
        sure: no test is skipped or may fail.
    """

    def __init__(self, names: Collection[str], every: Sequence[ast.stmt], *, split: bool, sure: bool = True) -> None:
        self.prepared = Prepared()
        self.units = 0
        self._split, self._none_skipped = split, sure
        self.names = frozenset(names)
        self._unit = -1
        self._sure = False
        self._assertions: list[bool] = []
        self._methods = lone_methods(every, self.names)
        self._compared: dict[Any, list[int]] = {}
        self._given_anew = {each.arg for each in find(every, ast.arg)}  # names of another value in each function
        stored = names_in(every, ast.Store)
        self._changed = {name for name in stored if stored.count(name) > 1}
        self._changed |= {
            ast.unparse(each.func.value) for each in find(every, ast.Call) if isinstance(each.func, ast.Attribute)
        }
        functions: list[Any] = find(every, *FUNCTIONS)
        self._reaching = set(names)  # with the functions of the tests that call the solution
        for _ in functions:
            self._reaching |= {node.name for node in functions if mentions(node, self._reaching)}
        self._forgiven = _called_where_failing_is_expected(every)
        self._reached: dict[int, list[int]] = {}
        self._required: dict[int, list[int]] = {}
        self._requires = False
        self._places = 0
        self._inside: ast.AST | None = None  # the innermost function, but for the units themselves
        self._in_function = 0  # outside of functions; in one, the number of the assertion that it begins with, or -1
        self._changing = self._free = self._caught = self._in_assert = self._many_functions = False
        self._denies_item = _denies(every, ast.NotIn, ast.In, "assertNotIn")
        self._denies_equal = _denies(every, ast.NotEq, ast.Eq, "assertNotEqual")
        near: list[ast.AST] = [
            node for node in find(every, ast.Call) if called(node) in ("abs", "fabs", "hypot", "square")
        ]
        near += [node for node in find(every, ast.BinOp) if isinstance(node.op, ast.Pow)]
        self._differences = {id(node) for node in find(near, ast.BinOp)}  # that are to be small
        self._own_assertions = {node.name for node in functions}  # which may do something else than unittest's
        self._own_assertions |= _EQUAL if "addTypeEqualityFunc" in map(called, find(every, ast.Call)) else set()
        self._data = taken_as_data(every)
        truths = [each for node in find(every, ast.Call) if called(node) in ("all", "any") for each in node.args]
        self._ordered = {id(each.elt) for each in truths if isinstance(each, ast.GeneratorExp | ast.ListComp)}
        self._related = related_names(every, self.names)  # they may have what the solution answered
        self._parameters: set[str] = set()  # of the functions around, in a test or beside it
        self._asked_twice: set[str] = set()  # calls of the unit whose answers may differ
        self._texts: Counter[str] = Counter()  # of the calls and attributes of the statement
        self._targets: set[str] | None = None  # of the innermost loop in an expression
        self._pinned_names: set[str] = set()
        self._every, self._given = every, set[str]()
        self._assigned: dict[str, ast.expr] = {}

    def finished(self, count: int) -> Prepared:
        """Returns what was taken out of so many units, when all is rewritten."""
        self.prepared.sure = [self._reached.get(unit, []) for unit in range(count)]
        self.prepared.required = [self._required.get(unit, []) for unit in range(count)]
        wires = self.prepared.literals
        for places in self._compared.values():
            if len({repr(wires[place]) for place in places}) > 1:
                self.prepared.several.extend(places)
        return self.prepared

    def next_unit(self) -> int:
        """Returns the number of another unit."""
        self.units += 1
        return self.units - 1

    def call(self, name: str, *given: Any) -> ast.Call:
        """Returns a call of a function of the judge with nodes or values."""
        nodes = [each if isinstance(each, ast.expr) else ast.Constant(each) for each in given]
        return ast.Call(ast.Constant(name), nodes, [])

    def block(self, unit: int, body: list[ast.stmt]) -> ast.stmt:
        """Returns the statement that runs a unit."""
        frame: Any = ast.parse("if 0:\n try: 0\n except BaseException as __error__: 0\n else: 0").body[0]
        frame.test, [attempt] = self.call("__begin__", unit), frame.body
        attempt.body = body
        attempt.handlers[0].body = [ast.Expr(self.call("__ended__", unit, ast.Name("__error__", ast.Load())))]
        attempt.orelse = [ast.Expr(self.call("__ended__", unit, None))]
        return frame  # type: ignore[no-any-return]

    def unit(self, number: int, body: list[ast.stmt], *, sure: bool = True) -> list[ast.stmt]:
        """Returns the statements of a unit, rewritten; `sure` where they run whenever the unit passes."""
        self._unit, self._assertions = number, []
        self._given = given_names(self._every) | given_names(body)
        self._changing = wants_unequal(body, self._given)
        self._many_functions = len({self._function(call) for call in find(body, ast.Call)} - {""}) > 1
        self._asked_twice = asked_twice(body)
        self._pinned_names = pinned_names(body)
        self._assigned = assigned_once(body)
        done = self._block(body, sure=sure and self._none_skipped)
        if self._assertions and not any(self._assertions):
            self.prepared.reaching.append(number)
        self._unit, self._changing, self._many_functions = -1, False, False
        return done

    def _block(self, body: list[ast.stmt], *, sure: bool) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in body:
            self._sure = sure and isinstance(statement, ast.Assert | ast.Expr | ast.With | ast.AsyncWith)
            result = self.visit(statement)
            done.extend(result if isinstance(result, list) else [result])
        self._sure = False
        return done

    def visit(self, node: ast.AST) -> Any:
        """Rewrites a node.

        Answers may differ within a statement that wants that, and from one statement to the next where their unit does.
        A statement that calls one function of the solution may change what the others answer.
        """
        if not isinstance(node, _SIMPLE):
            return super().visit(node)
        outer = self._free, self._texts
        names = {self._function(call) for call in find(node, ast.Call)} - {""}
        self._texts = Counter(map(ast.unparse, find(node, ast.Attribute, ast.Call)))
        self._free = self._changing and wants_unequal([node], self._given)
        done = super().visit(node)
        self._free, self._texts = outer
        if not self._changing and not (self._many_functions and names):
            return done
        forgets = self.call("__forget__", *([] if self._changing else sorted(names)))
        return [*(done if isinstance(done, list) else [done]), ast.Expr(forgets)]

    def _function(self, node: ast.Call) -> str:
        """Returns the name of a function, or class, of the solution that a call calls, "" for any other call."""
        own = called_by_name(node) in self.names or ast.unparse(node.func) in self._methods
        own = own or (isinstance(node.func, ast.Attribute) and self._is_made_anew(node.func.value))
        return called(node) if own else ""

    def visit_For(self, node: Any) -> Any:
        """Rewrites a loop; answers may differ from one time to the next."""
        self.generic_visit(node)
        node.body = [ast.Expr(self.call("__forget__")), *node.body]
        return node

    visit_AsyncFor = visit_While = visit_For  # noqa: N815 - the names that `ast` looks for

    def visit_ListComp(self, node: Any) -> Any:
        """Rewrites a loop in an expression; a call that is the same each time may have other answers each time."""
        outer, targets = self._targets, set(names_in([each.target for each in node.generators]))
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        own = not find(parts, ast.Compare) or not targets & set(names_in(node, ast.Load))
        self._targets = targets if own else None
        self.generic_visit(node)
        self._targets = outer
        return node

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp  # noqa: N815

    def visit_FunctionDef(self, node: Any) -> Any:
        """Rewrites a function of the tests; one that is left before its first assertion is noticed."""
        outer = self._inside, self._caught, self._in_function, self._parameters
        self._inside, self._caught = node, self._caught or node.name in self._forgiven
        self._parameters = self._parameters | {each.arg for each in find(node.args, ast.arg)}
        begins = not self._caught and _begins_with_assertion(node.body)
        self._in_function = self._next_place() if begins else -1
        entered = [ast.Expr(self.call("__enter__", self._in_function))] if begins else []
        node.body = [*entered, *self._block(node.body, sure=begins)]
        self._inside, self._caught, self._in_function, self._parameters = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` looks for

    def visit_Try(self, node: ast.Try) -> ast.Try:
        kinds = [ast.unparse(each.type) if each.type else "Exception" for each in node.handlers]
        outer, self._caught = self._caught, self._caught or any(map(re.compile(_FORGIVEN).search, kinds))
        node.body = self._block(node.body, sure=False)
        self._caught = outer
        node.handlers = [self.visit(each) for each in node.handlers]
        node.orelse, node.finalbody = (self._block(each, sure=False) for each in (node.orelse, node.finalbody))
        return node

    def visit_With(self, node: Any) -> Any:
        """Rewrites a block: it runs to its end, unless an exception is expected in it."""
        sure, outer = self._sure, self._caught
        expected = [item.context_expr for item in node.items if _expects(item.context_expr)]
        node.items = [self.visit(item) for item in node.items]
        self._caught = outer or any(re.search(_FORGIVES, ast.unparse(each)) for each in expected)
        node.body = self._block(node.body, sure=sure and not expected)
        self._caught = outer
        return [node, self._passed(sure)] if expected and self._unit >= 0 else node

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """Rewrites an assignment; what is only compared with known values may change."""
        pinned = isinstance(node.targets[0], ast.Name) and node.targets[0].id in self._pinned_names
        node.value = self._direct(node.value) if pinned else self.visit(node.value)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        """Rewrites a condition; one that raises an AssertionError is an assertion."""
        raised = node.body[0] if len(node.body) == 1 and not node.orelse else None
        if self._in_function == 0 and isinstance(raised, ast.Raise) and "AssertionError" in ast.unparse(raised):
            return self.visit_Assert(ast.Assert(ast.UnaryOp(ast.Not(), node.test), None))
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        place, asks = -1, self._asks(node.test)
        if not (isinstance(node.test, ast.Constant) and not node.test.value):
            self._assertions.append(self._sure)
            self._requires = self._sure and self._unit >= 0 and self._in_function == 0
            place = self._place(self._sure)
        outer, self._caught, self._in_assert = self._caught, self._caught or not asks, True
        test = self._asserted(node.test)
        node.test = self.call("__true__", test, place, self._caught)
        self._caught, self._in_assert, self._sure, self._requires = outer, False, False, False
        return node

    def _asks(self, test: ast.expr) -> bool:
        """Returns whether an assertion asks for something of the solution.

        Else it is there to fail, for a solution that catches that: `assert 1 == 2`, or, in a function that is to be
        tried again, `assert len(calls) == 3`.
        """
        names = set(names_in(test)) - vars(builtins).keys()
        return bool(names) and (self._in_function == 0 or bool(names & (self._parameters | self._related)))

    def _passed(self, sure: bool) -> ast.stmt:
        """Returns the statement that notes an assertion of another form, which stands behind it."""
        self._assertions.append(sure)
        return ast.Expr(self.call("__true__", True, self._place(sure)))

    def _place(self, sure: bool) -> int:
        """Returns the number of an assertion that is surely reached, -1 for one that may not be."""
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
        """Rewrites what stands alone; methods of unittest that compare two values are assertions like any other."""
        call, sure = node.value, self._sure
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr.startswith("assert")
            and call.func.attr not in self._own_assertions
        ):
            named = [each.value for each in call.keywords if each.arg in ("first", "second", "member", "container")]
            name, asked = call.func.attr, None if self._caught else [*call.args, *named][:2]
            if asked and name in _TRUTHS:
                return self.visit_Assert(
                    ast.Assert(asked[0] if _TRUTHS[name] else ast.UnaryOp(ast.Not(), asked[0]), None)
                )
            if asked and asked[1:] and name in _COMPARING:
                return self.visit_Assert(ast.Assert(ast.Compare(asked[0], [_COMPARING[name]()], asked[1:]), None))
            if asked and asked[1:] and name in _LIKE:
                question = ast.parse("lambda value, wanted: 0 is None", mode="eval").body
                names: list[ast.expr] = [ast.Name(each, ast.Load()) for each in ("value", "wanted")]
                question.body.left = ast.Call(call.func, [*names, *call.args[2:]], call.keywords)  # type: ignore[attr-defined]
                self._assertions.append(sure)
                same = self.call("__same__", *map(self.visit, asked), question)
                return ast.Assert(self.call("__true__", same, self._place(sure)), None)
            self.generic_visit(node)
            if name.startswith("assert_"):
                node.value = self.call("__called__", call.func.value, name, *call.args)
                node.value.keywords = call.keywords
            return [node, self._passed(sure)]
        reaches = mentions(call, self._reaching)
        self.generic_visit(node)
        forgets = isinstance(call, ast.Call) and self._unit >= 0 and (not self._split or reaches)
        return [node, ast.Expr(self.call("__forget__"))] if forgets else node

    def visit_Match(self, node: ast.Match) -> ast.Match:
        """Rewrites a match: patterns of values compare too."""
        self.generic_visit(node)
        node.subject = self.call("__doubted__", node.subject)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        name = {ast.Eq: "__compared__", ast.NotEq: "__differ__", ast.In: "__contains__"}.get(type(node.ops[0]))
        if id(node) in self._ordered and set(map(type, node.ops)) <= _ORDERS.keys():
            return self._order(node)
        if len(node.ops) > 1 and not find(node.comparators[:-1], ast.Call):
            return self.visit(_pairwise(node))  # type: ignore[no-any-return]
        if name is None or len(node.ops) > 1:
            self.generic_visit(node)
            return node
        if name == "__contains__":
            return self.call(name, self.visit(node.left), self.visit(node.comparators[0]), self._denies_item)
        if name == "__compared__" and id(node) in self._data:
            name = "__computed__"
        return self._compare(name, node.left, node.comparators[0])

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        once = self._texts[ast.unparse(node)] < 2
        self.generic_visit(node)
        if once or self._unit < 0 or self._free or not isinstance(node.ctx, ast.Load) or not self._in_assert:
            return node
        return self.call("__get__", node.value, node.attr)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        text, free, function = ast.unparse(node), self._free, self._function(node)
        free |= self._targets is not None and not mentions(node, self._targets)
        self._visit_parts(node)
        name = called_by_name(node)
        if free or self._unit < 0 or not (node.args or node.keywords):
            return node
        if self._looks_up(node):
            return self._lookup(node)
        if name == "isinstance" and len(node.args) == 2:
            return self.call("__kind__", *node.args)
        if name in _CONVERSIONS and len(node.args) == 1 and not node.keywords and self._texts[text] > 1:
            return self.call("__twice__", node.func, *node.args)
        if not function or text in self._asked_twice:
            return node
        asked = self.call("__ask__", node.func, *node.args)
        asked.keywords = node.keywords
        return asked

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        asked = not self._split and isinstance(node.op, ast.Sub | ast.Div) and id(node) in self._differences
        self.generic_visit(node)
        name = "__minus__" if isinstance(node.op, ast.Sub) else "__over__"
        return self.call(name, node.left, node.right) if asked else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not self._in_assert or not isinstance(node.ctx, ast.Load) or isinstance(node.slice, ast.Slice):
            return node
        return self.call("__lookup__", node.value, "[]", node.slice)

    def _looks_up(self, node: ast.Call) -> bool:
        """Returns whether a call asks a container of an assertion for an item."""
        asked = self._in_assert and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKUPS
        return asked and bool(node.args) and not node.keywords

    def _lookup(self, node: Any) -> ast.expr:
        return self.call("__lookup__", node.func.value, node.func.attr, *node.args)

    def _visit_parts(self, node: ast.Call) -> None:
        """Rewrites what a call is made of; the call itself stays."""
        makes = not self._split and not self._denies_equal and self._makes(node)
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        else:
            node.func = self.visit(node.func)
        if makes or self._compares(node.func):
            node.func = self.call("__making__" if makes else "__watched__", node.func)
        if called_by_name(node) == "map" and node.args and self._compares(node.args[0]):
            node.args[0] = self.call("__watched__", node.args[0])
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]

    def _is_made_anew(self, node: ast.expr) -> bool:
        """Returns whether an object of the solution is made without arguments, for the one call: `Solution().f(3)`."""
        return isinstance(node, ast.Call) and not (node.args or node.keywords) and called_by_name(node) in self.names

    def _asserted(self, test: ast.expr) -> ast.expr:
        """Returns the expression of an assertion, which the judge takes part in deciding."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test.values = [self._asserted(value) for value in test.values]
            return test
        if isinstance(test, ast.Compare) and not self._caught:
            if len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
                return self._equal(test.left, test.comparators[0])
            if set(map(type, test.ops)) <= _ORDERS.keys():
                return self._order(test)
            if len(test.ops) > 1:
                return self._asserted(_pairwise(test))
        if called_by_name(test) == "__near__" and isinstance(test, ast.Call):
            kept = self._kept(test.args[1])
            if kept is not None:
                return self.call("__known__", self.visit(test.args[0]), kept, test.args[2])
        if isinstance(test, ast.Compare) and pinned_sides(test):
            test.left, test.comparators = self._direct(test.left), [self._direct(test.comparators[0])]
            return test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._direct(test.operand)
            return test
        return self._direct(test)

    def _order(self, node: ast.Compare) -> ast.expr:
        orders = ast.Tuple([ast.Constant(_ORDERS[type(operator)]) for operator in node.ops], ast.Load())
        return self.call("__order__", orders, *map(self.visit, [node.left, *node.comparators]))

    def _equal(self, left: ast.expr, right: ast.expr) -> ast.expr:
        for side, other in ((left, right), (right, left)):
            place = self._kept(other) if not isinstance(side, ast.Constant) else None
            if place is not None:
                if self._requires:
                    self._required.setdefault(self._unit, []).append(place)
                made = self._denies_equal and self._is_made(self._assigned.get(ast.unparse(side), side))
                if made:
                    self.prepared.several.append(place)
                if self._is_made_anew(side) or (isinstance(side, ast.Name) and side.id not in self._changed):
                    name = ast.unparse(side)
                    where = (self._unit, self._inside) if name in self._given_anew else None
                    self._compared.setdefault((where, name), []).append(place)
                return self.call("__known__", self._direct(side), place, None, made)
        return self._compare("__alike__", left, right)

    def _compare(self, name: str, left: ast.expr, right: ast.expr) -> ast.expr:
        """Returns a comparison whose sides are computed in their order.

        But what is expected comes first where it is computed of values of the tests alone (`sorted(items)`): a solution
        that empties its arguments would only make tests ask for less.
        """
        own = {*self._given, *vars(builtins), *names_in(right, ast.Store)}
        first = find(right, ast.Call) and called(right) != "len" and set(names_in(right)) <= own and not self._split
        compared = self.call(name)
        sides = [ast.keyword("left", self.visit(left)), ast.keyword("right", self.visit(right))]
        compared.keywords = sides[::-1] if first else sides
        return compared

    def _compares(self, node: ast.expr) -> bool:
        """Returns whether a function compares two values: `operator.eq`, `a.__eq__`, `self.assertEqual`."""
        if self._split or not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return False
        return node.attr in ("__eq__", *_EQUAL) or ast.unparse(node) == "operator.eq"

    def _makes(self, node: ast.Call) -> bool:
        """Returns whether a class of the solution is called with something, or a method of the class: `V.of(3)`."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        named = isinstance(owner, ast.Name) and owner.id in self.names and owner.id[:1].isupper()
        return named and bool(node.args or node.keywords)

    def _is_made(self, node: ast.expr) -> bool:
        """Returns whether an expression makes objects of the solution's classes of values that stand in it."""
        classes = {name for name in self.names if name[:1].isupper()}
        calls = find(node, ast.Call)
        own = all(called_by_name(call) in classes for call in calls)
        others = set(names_in(node)) - classes - vars(builtins).keys()
        return bool(calls) and own and not others and not find(node, ast.Lambda, ast.Attribute)

    def _direct(self, node: ast.expr) -> ast.expr:
        """Returns what is compared with a known value: answers that are all of it, or items of it, may change."""
        if isinstance(node, ast.List | ast.Tuple):
            node.elts = [self._direct(each) for each in node.elts]
        elif isinstance(node, ast.ListComp):
            node.elt, node.generators = self._direct(node.elt), [self.visit(each) for each in node.generators]
        elif isinstance(node, ast.Attribute):
            node.value = self.visit(node.value)
        elif isinstance(node, ast.Call) and self._function(node):
            self._visit_parts(node)
        else:
            node = self.visit(node)
        return node

    def _kept(self, node: ast.expr) -> int | None:
        """Takes a value out of the tests, if the node is one; returns its place."""
        wire = literal(node)
        if wire is None:
            return None
        self.prepared.literals.append(wire[0])
        return len(self.prepared.literals) - 1


def _denies(every: Sequence[ast.stmt], operator: type[ast.cmpop], denied: type[ast.cmpop], method: str) -> bool:
    """Returns whether tests ask for the contrary of an operator somewhere, in whatever form."""
    calls = find(every, ast.Call)
    turned: list[ast.expr] = [node.operand for node in find(every, ast.UnaryOp) if isinstance(node.op, ast.Not)]
    turned += [node.args[0] for node in calls if called(node) == "assertFalse" and node.args]
    compared = find(every, ast.Compare)
    turned += [node.left for node in compared if any(ast.unparse(each) == "False" for each in node.comparators)]
    asked = any(isinstance(each, operator) for node in compared for each in node.ops)
    denies = any(isinstance(node, ast.Compare) and isinstance(node.ops[0], denied) for node in turned)
    return asked or denies or method in map(called, calls)


def _pairwise(node: ast.Compare) -> ast.BoolOp:
    """Returns `a == (b := f()) and b == c` for `a == f() == c`: what is called is called once."""
    pairs, left = [], node.left
    for number, (operator, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
        following: ast.expr = copy.deepcopy(right)
        if find(right, ast.Call) and right is not node.comparators[-1]:
            name = f"__middle_{number}__"
            right, following = ast.NamedExpr(ast.Name(name, ast.Store()), right), ast.Name(name, ast.Load())
        pairs.append(ast.Compare(left, [operator], [right]))
        left = following
    return ast.BoolOp(ast.And(), list[ast.expr](pairs))


def expects_or_asserts(name: str) -> bool:
    """Returns whether a function of that name expects an exception, a warning or a log line, or asserts something."""
    return name.startswith((*_EXPECTING, "assert", "fail"))


def _expects(node: ast.expr) -> bool:
    """Returns whether the context of a block expects an exception, a warning or a log line."""
    return called(node).startswith((*_EXPECTING, "suppress"))


def _called_where_failing_is_expected(every: Sequence[ast.stmt]) -> set[str]:
    """Returns the names in blocks that expect an AssertionError, or catch what is raised in them."""
    blocks: list[ast.AST] = [statement for node in find(every, ast.Try) for statement in node.body]
    withs: list[Any] = find(every, ast.With, ast.AsyncWith)
    for node in withs:
        contexts = [item.context_expr for item in node.items if _expects(item.context_expr)]
        if any(re.search(_FORGIVES, ast.unparse(each)) for each in contexts):
            blocks.extend(node.body)
    blocks.extend(each for each in find(every, ast.Call) if _expects(each) and re.search(_FORGIVES, ast.unparse(each)))
    return set(names_in(blocks))


def _begins_with_assertion(body: list[ast.stmt]) -> bool:
    """Returns whether a function surely comes to its first assertion, unless something goes wrong before."""
    for statement in body:
        if isinstance(statement, ast.Assert):
            return not isinstance(statement.test, ast.Constant)
        if (
            isinstance(statement, ast.With | ast.AsyncWith)
            and find(statement, ast.Assert)
            and not any(_expects(item.context_expr) for item in statement.items)
        ):
            return _begins_with_assertion(statement.body)
        if find(statement, ast.Return, ast.Raise, ast.Try, ast.Yield):
            return False
    return False
