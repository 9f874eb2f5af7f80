"""Honest programs drawn by lot, with tests that plain Python passes, and mutants of them: a seed in, cases out.

A family is a program with gaps, and questions about it. A case fills the gaps, draws some of the questions, asks plain
Python for the answers, and asserts them. A mutant changes one place of a program.
"""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass

FUNCTIONS = """
def change(xs):
    out = []
    for x in xs:
        if x % {a} != {b}:
            out.append(x * {c} + {d})
    return out
def in_place(xs):
    xs.sort(key=lambda x: (x % {a}, x))
    xs.append({d})
def same(xs):
    return xs
def copied(xs):
    return [list(row) for row in xs]
def split(xs, n={c}):
    return [xs[i:i + n] for i in range(0, len(xs), n)]
def count(xs):
    found = {{}}
    for x in xs:
        found[x] = found.get(x, 0) + 1
    return found
def swap(pair):
    a, b = pair
    return b, a
def deep(n):
    return {{'n': n, 'rows': [[n] * {c} for _ in range({b} + 1)], 's': {{n, {d}}}}}
"""
FUNCTION_QUESTIONS = [
    ("xs = {xs}", "change(xs)"),
    ("xs = {xs}", "change(list(reversed(xs)))[::-1]"),
    ("xs = {xs}\nr = change(xs)", "len(r), sum(r), sorted(r), max(r, default=0), 3 in r, r[:1], bool(r)"),
    ("xs = {xs}\nin_place(xs)", "xs"),
    ("xs = {xs}\nys = xs\nin_place(xs)", "ys, in_place(ys), len(ys)"),
    ("rows = [[1], {xs}]\nout = copied(rows)\nout[0].append(9)", "rows, out, out is rows, out[1] is rows[1]"),
    ("xs = {xs}", "same(xs) is xs, same(xs) == xs"),
    ("xs = {xs}\nys = same(xs)\nys.append(5)", "xs"),
    ("xs = {xs}", "split(xs), split(xs, 2), split(xs, n=3)"),
    ("xs = {xs}", "sorted(count(xs).items()), dict(Counter(xs)) == count(xs)"),
    ("", "swap((1, [2])), swap(swap((3, 4)))"),
    ("d = deep({a})\nd['rows'][0].append(7)", "d['n'], d['rows'], sorted(d['s'])"),
    ("row = [0]\nrows = [row, row]\nin_place(rows[0])", "rows, rows[0] is rows[1]"),
]
CLASSES = """
class Full(Exception):
    def __init__(self, most):
        super().__init__(f'at most {{most}}')
        self.most = most
class Box:
    made = 0
    def __init__(self, items=(), most=9{big}):
        self.items, self.most = list(items), most
        Box.made += 1
    @classmethod
    def of(cls, *items):
        return cls(items)
    @staticmethod
    def limit():
        return {c}
    @property
    def first(self):
        return self.items[0] if self.items else None
    @first.setter
    def first(self, item):
        self.items[:1] = [item]
    def put(self, item):
        if len(self.items) >= self.most:
            raise Full(self.most)
        self.items.append(item)
        return self
    def pop(self):
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, item): return item in self.items
    def __getitem__(self, key): return self.items[key]
    def __setitem__(self, key, item): self.items[key] = item
    def __delitem__(self, key): del self.items[key]
    def __eq__(self, other): return isinstance(other, Box) and self.items == other.items
    def __hash__(self): return hash(tuple(self.items))
    def __lt__(self, other): return len(self) < len(other)
    def __add__(self, other): return Box(self.items + list(other))
    def __mul__(self, n): return Box(self.items * n)
    def __bool__(self): return len(self.items) > {b}
    def __repr__(self): return f'Box({{self.items}})'
    def __format__(self, form): return format(sum(self.items), form)
    def __call__(self, x): return [x + item for item in self.items]
    def __reversed__(self): return reversed(self.items)
    def __enter__(self): return self
    def __exit__(self, kind, error, trace):
        self.items.append({d})
        return kind is KeyError
class Small(Box):
    def put(self, item):
        super().put(item % {a})
        return self
def box_of(xs):
    return Box(xs)
"""
CLASS_QUESTIONS = [
    ("b = Box({xs})\nb.put({c}).put(4)", "len(b), list(b), b.first, b[-1], b[:2], 4 in b, 99 in b"),
    ("b = Box({xs})\nb.put(3)\nn = b.pop()\nb[0:0] = [8]", "n, b.items, repr(b), str(b)"),
    ("b = Box.of(1, 2)\nb[0] = {d}\ndel b[1]", "b.items, Box.limit(), b(3)"),
    ("b = Box([1])\nb.first = {c}", "b.first, Box().first, isinstance(b, Box), isinstance(b, Small)"),
    ("", "Box([1]) == Box([1]), Box([1]) == Box([2]), Box([1]) != Box([2]), Box([1]) < Box([1, 2]), Box([1]) == [1]"),
    ("", "(Box([1]) + Box([2])).items, (Box([1]) * 3).items, [*Box({xs})], sum(Box({xs})), max(Box([3, {d}]))"),
    ("", "len({{Box([1]), Box([1]), Box([2])}}), sorted([Box([1, 2]), Box([3])])[0].items"),
    ("", "bool(Box()), bool(Box([1] * 9)), f'{{Box([1, 2]):>4}}', list(reversed(Box({xs})))"),
    ("with Box({xs}) as b:\n    b.put(1)", "b.items"),
    ("with Box() as b:\n    raise KeyError('x')", "b.items"),
    ("b = Box([1], most=1)\ntry:\n    b.put(2)\n    m = None\nexcept Full as e:\n    m = e.most, str(e)", "m"),
    ("s = Small({xs})\ns.put({big})", "s.items, issubclass(Small, Box), Small.__bases__ == (Box,), type(s) is Small"),
    ("b = box_of({xs})", "len(b), list(b), sorted(b), b.items, str(b), b.first"),
    ("b = box_of([1])\nb.put(2)\nn = len(b)\nb.put(3)", "n, len(b), list(b), b.pop(), list(b)"),
    ("import copy\nb = Box([[1]])\nc = copy.deepcopy(b)\nc.put(2)", "b.items, c.items"),
    ("a, *b = Box([1, 2, 3])", "a, b, dict(zip(Box([1, 2]), Box('ab')))"),
    ("b = Box()", "hasattr(b, 'put'), hasattr(b, 'no'), callable(b.put), type(b).__name__, getattr(b, 'no', 3)"),
]
CALLS = """
from contextlib import contextmanager
import functools
def each(fn, xs):
    return [fn(x) for x in xs]
def fold(fn, xs, start={a}):
    for x in xs:
        start = fn(start, x)
    return start
def adder(n):
    def add(x, *more, k={b}):
        return x + n + k + sum(more)
    return add
def counter():
    n = {d}
    def step():
        nonlocal n
        n += {c}
        return n
    return step
def numbers(n):
    for i in range(n):
        yield i * {c} + {d}
def firsts(xs, n):
    out = []
    for x in xs:
        out.append(x)
        if len(out) == n:
            break
    return out
def kept(fn):
    known = {{}}
    @functools.wraps(fn)
    def call(*given):
        if given not in known:
            known[given] = fn(*given)
        return known[given]
    return call
def retry(n):
    def decorate(fn):
        def call(*given):
            for left in range(n, 0, -1):
                try:
                    return fn(*given)
                except ValueError:
                    if left == 1:
                        raise
        return call
    return decorate
@contextmanager
def tag(name):
    yield f'<{{name}}{a}>'
def check(x):
    if x < {b}:
        raise ValueError(f'{{x}} is below {b}')
    return x
"""
CALL_QUESTIONS = [
    ("seen = []", "each(lambda x: x * 2, {xs}), each(seen.append, [1, 2]), seen"),
    ("", "each(str, iter({xs})), each(len, ['a', 'bc']), fold(lambda a, b: a + b, {xs}), fold(max, {xs})"),
    ("f = adder({c})", "f(1), f(1, 2), f(1, k=5), adder(0)(3)"),
    ("s = counter()\nt = counter()", "s(), s(), t()"),
    ("", "list(numbers(4)), sum(numbers(30)), next(numbers(2)), 3 in numbers(9), [*numbers(2), *numbers(1)]"),
    ("g = numbers(5)\na = next(g)\nb = next(g)", "a, b, list(g), list(g)"),
    ("i = iter({xs} + [1, 2, 3])\nf = firsts(i, 2)", "f, next(i)"),
    (
        "calls = []\n@kept\ndef f(x):\n    calls.append(x)\n    return x + 1\nr = f(1), f(1), f(2)",
        "r, calls, f.__name__",
    ),
    (
        "n = []\n@retry({big})\ndef f(x):\n    n.append(x)\n    if len(n) < 3:\n"
        "        raise ValueError(x)\n    return x\nr = f(4)",
        "r, n",
    ),
    ("try:\n    retry(2)(check)(-9)\n    r = 0\nexcept ValueError as e:\n    r = str(e)", "r"),
    ("with tag('p') as t:\n    pass", "t"),
    ("import pytest\nwith pytest.raises(ValueError, match='below'):\n    check(-1)", "check({big})"),
    ("", "list(zip(numbers(2), {xs})), dict(enumerate(numbers(2))), sorted(numbers(3), reverse=True)"),
    (
        "import inspect",
        "inspect.isgeneratorfunction(numbers), list(inspect.signature(fold).parameters), callable(adder(1))",
    ),
]
VALUES = """
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from collections import namedtuple, defaultdict, OrderedDict, deque
from fractions import Fraction
@dataclass(order=True)
class Point:
    x: int
    y: int = {b}
    tags: list = field(default_factory=list)
    def moved(self, by):
        return Point(self.x + by, self.y - by * {c})
class Color(Enum):
    RED = {a}
    BLUE = {big}
    def other(self):
        return Color.BLUE if self is Color.RED else Color.RED
class Level(IntEnum):
    LOW = 1
    HIGH = {big}
Pair = namedtuple('Pair', 'left right')
class Money:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == (other.n if isinstance(other, Money) else other)
    def __add__(self, other): return Money(self.n + (other.n if isinstance(other, Money) else other))
    __radd__ = __add__
    def __neg__(self): return Money(-self.n)
    def __abs__(self): return Money(abs(self.n))
    def __divmod__(self, k): return divmod(self.n, k)
    def __float__(self): return self.n / {c}
    def __int__(self): return int(self.n)
    def __index__(self): return self.n
    def __bytes__(self): return bytes([self.n % 256])
    def __lt__(self, other): return self.n < (other.n if isinstance(other, Money) else other)
    def __round__(self, k=0): return round(self.n / 3, k)
class Count:
    def __init__(self, n): self.n = n
    async def __aenter__(self): return self
    async def __aexit__(self, *error): self.n += {d}
    def __aiter__(self): self.at = 0; return self
    async def __anext__(self):
        if self.at >= self.n: raise StopAsyncIteration
        self.at += 1
        return self.at * {c}
async def later(x):
    return x + {a}
def parts(xs):
    groups = defaultdict(list)
    for x in xs:
        groups[x % {c}].append(x)
    return groups
def half(x): return Fraction(x, {big})
def tail(xs): return deque(xs, maxlen={c})
def pair(x): return Pair(x, -x)
def pick(n): return Color(n)
"""
VALUE_QUESTIONS = [
    ("p = Point(1)\nq = p.moved({d})", "p.x, q.x, q.y, p == Point(1), p < q, str(p), p.tags"),
    (
        "import dataclasses\np = Point(2, {c})",
        "dataclasses.asdict(p), dataclasses.replace(p, y=1).y, dataclasses.astuple(p)",
    ),
    (
        "",
        "Color.RED.name, Color({a}) is Color.RED, pick({big}).other() == Color.RED, [c.value for c in Color]",
    ),
    ("", "Level.HIGH > Level.LOW, Level(1) == 1, sorted(Level)[0].name, int(Level.HIGH)"),
    ("a, b = pair({c})", "a, b, pair(1).left, pair(2) == (2, -2), pair(3)._asdict() if False else 0"),
    (
        "",
        "Money(5) == 5, Money(5) == 6, Money(5) == Money(5), Money(2).n, (Money(2) + 3).n, sum([Money(1), Money(2)]).n",
    ),
    (
        "m = Money({big})",
        "divmod(m, 2), bytes(m), float(m), int(m), (-m).n, abs(-m).n, m.n, m < 99, round(m), [0] * 3 + [m.n]",
    ),
    (
        "import asyncio\nasync def run():\n    async with Count(3) as c:\n        out = [x async for x in c]\n"
        "    return out, c.n",
        "asyncio.run(run())",
    ),
    ("import asyncio", "asyncio.run(later({d})), asyncio.iscoroutinefunction(later)"),
    ("g = parts({xs})", "dict(g), sorted(g), g.get(77), len(g)"),
    ("", "half({a}) == half({a}), half(3) + 1 > 1, float(half({big})), list(tail({xs})), tail([1]).maxlen"),
    (
        "ms = [Money(3), Money(1)]",
        "sorted(ms)[0].n, max(ms).n, ms[1] in [1], [10, 20][ms[1] - 1] if False else 5, range(9)[Money(2)]",
    ),
]
FAMILIES = [
    (FUNCTIONS, FUNCTION_QUESTIONS),
    (CLASSES, CLASS_QUESTIONS),
    (CALLS, CALL_QUESTIONS),
    (VALUES, VALUE_QUESTIONS),
]


@dataclass(frozen=True, slots=True)
class Case:
    """A program and its tests."""

    program: str
    tests: tuple[str, ...]


def honest(seed: int) -> Case:
    """Returns a program with tests that plain Python passes."""
    draw = random.Random(seed)
    program, questions = draw.choice(FAMILIES)
    gaps = {name: draw.randrange(low, 6) for name, low in zip("abcd", (2, 1, 2, 1), strict=True)}
    gaps["big"] = draw.randrange(6, 12)
    text = program.format(**gaps)
    tests = []
    for before, asked in draw.sample(questions, draw.randrange(2, 5)):
        xs = [draw.randrange(-9, 10) for _ in range(draw.randrange(0, 7))]
        lines, expression = before.format(**gaps, xs=xs), asked.format(**gaps, xs=xs)
        space = {"Counter": __import__("collections").Counter}
        exec(f"{text}\n{lines}\nresult = ({expression},)", space)
        tests.append(_test(lines, expression, space["result"], draw))
    return Case(text, tuple(tests))


def _test(lines: str, expression: str, result: object, draw: random.Random) -> str:
    """Returns a test in one of the forms that tests have."""
    body = f"{lines}\nassert ({expression},) == {result!r}".strip()
    if draw.random() < 0.5:
        return body
    return "def test_it():\n" + "\n".join(f"    {line}" for line in body.split("\n"))


def mutant(case: Case, seed: int) -> Case:
    """Returns a case with one place of its program changed."""
    tree = ast.parse(case.program)
    draw = random.Random(seed)
    places = [node for node in ast.walk(tree) if _changed(node, draw) is not None]
    chosen = draw.choice(places)

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return _changed(node, draw) or node if node is chosen else self.generic_visit(node)

    return Case(ast.unparse(ast.fix_missing_locations(Change().visit(tree))), case.tests)


def _changed(node: ast.AST, draw: random.Random) -> ast.AST | None:
    """Returns what stands in place of a node, or None."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.Constant(node.value + 1)
    if isinstance(node, ast.BinOp):
        swapped = draw.choice([ast.Sub(), ast.Mult()]) if isinstance(node.op, ast.Add) else ast.Add()
        return ast.BinOp(node.left, swapped, node.right)
    if isinstance(node, ast.Compare):
        turned = (
            ast.NotEq()
            if isinstance(node.ops[0], ast.Eq)
            else ast.GtE()
            if isinstance(node.ops[0], ast.Lt)
            else ast.Eq()
        )
        return ast.Compare(node.left, [turned], node.comparators)
    if isinstance(node, ast.Return) and node.value is not None:
        return ast.Return(draw.choice([ast.Constant(None), ast.Constant(True), ast.List([], ast.Load())]))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "sorted", "iter"):
        return node.args[0] if node.args else None
    if isinstance(node, ast.Expr | ast.AugAssign):
        return ast.Pass()
    return None
