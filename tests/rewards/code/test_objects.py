"""Tests whose solution has classes, callbacks or generators, in the real sandbox: semantics are those of Python."""

import asyncio
from collections.abc import Callable

import pytest

from grpo.rewards.code.results import CodeResult, UnusableTests
from grpo.rewards.code.spec import passing

pytestmark = pytest.mark.usefixtures("sandbox_pools")
DOUBLE = "def double(x):\n    return 2 * x\n"
STACK = """
class Empty(Exception):
    pass

class Stack:
    size = 0
    def __init__(self, items=()):
        self.items = list(items)
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        if not self.items:
            raise Empty("nothing here")
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        return iter(self.items)
    def __contains__(self, item):
        return item in self.items
    def __getitem__(self, key):
        return self.items[key]
    def __eq__(self, other):
        return isinstance(other, Stack) and self.items == other.items
    def __add__(self, other):
        return Stack(self.items + other.items)
    def __mul__(self, count):
        return Stack(self.items * count)
    def __str__(self):
        return f"Stack({self.items})"
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.items.clear()
"""

IN_BLOCK = "with M() as m:\n    assert m.x == 3"
MADE = "class V:\n    def __init__(s, *a): pass\n    __eq__ = lambda s, o: isinstance(o, V)\n"
NUMBER = "class M:\n    __sub__ = __abs__ = lambda s, *o: s\n    __lt__ = __eq__ = lambda s, o: True\n"
INSIDE = "def run(call):\n    space = getattr(call, '__glo' + 'bals__')\n    space.update(dict.fromkeys({}, print))\n"
NAMES = "('__true__', '__known__', '__alike__', '__ended__')"
PATCHES = (
    "class M:\n    def make(s):\n        import builtins\n        builtins.sorted = lambda x: [1]\n        return 0\n"
)
OF_UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(M().x, 3)"


@pytest.mark.slow
def test_arguments_that_the_solution_changes_are_changed_for_the_tests(passes: Callable[..., None]) -> None:
    program = "def order(items, seen):\n    items.sort()\n    seen['n'] = [len(items)]"
    passes(program, "a, s = [3, 2], {}\norder(a, s)\nassert (a, s) == ([2, 3], {'n': [2]})")
    passes(program, "a, b = [1], [2]\nc = [b, a]\norder(c, {})\nassert c == [a, b] and c[0] is a")
    passes(
        "def mark(rows):\n    rows[1].append(5)", "a = [[1], [2]]\nb = a[1]\nmark(a)\nassert b == [2, 5] and a[1] is b"
    )


def test_a_change_of_an_argument_does_not_decide_the_assertion_that_it_happens_in(
    fails: Callable[..., CodeResult],
) -> None:
    program = "def order(items):\n    items.clear()\n    return items"
    fails(program, "items = [3, 1, 2]\nassert order(items) == sorted(items)")
    fails(
        program,
        (
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
            "        a = [2, 1]\n        self.assertEqual(order(a), sorted(a))"
        ),
    )


def test_functions_and_iterators_of_the_tests_reach_the_solution(passes: Callable[..., None]) -> None:
    program = "def apply(f, items):\n    return [f(item) for item in items]"
    passes(
        program, "assert apply(lambda x: x + 1, iter([1, 2])) == [2, 3]", "assert apply(str, (n for n in [1])) == ['1']"
    )


def test_a_callback_may_call_the_solution_again(passes: Callable[..., None]) -> None:
    passes(
        "def walk(f, n):\n    return f(n) if n else 0", "assert walk(lambda n: 1 + walk(lambda m: m, n - 1), 3) == 3"
    )


def test_generators_and_endless_iterators_are_read_on_demand(passes: Callable[..., None]) -> None:
    program = "def count():\n    n = 0\n    while True:\n        n += 1\n        yield n"
    passes(
        program,
        "from itertools import islice\nassert list(islice(count(), 40)) == list(range(1, 41))",
        "g = count()\nassert (next(g), next(g)) == (1, 2)",
    )
    passes(
        "def two():\n    yield 1\n    raise ValueError('end')",
        (
            "g = two()\nassert next(g) == 1\ntry:\n    next(g)\n    assert False\n"
            "except ValueError as e:\n    assert str(e) == 'end'"
        ),
    )


def test_classes_of_the_solution_have_all_their_operators(passes: Callable[..., None]) -> None:
    tests = [
        "s = Stack([1])\nassert s.push(2).push(3) is not None and len(s) == 3",
        "assert list(Stack([1, 2])) == [1, 2] and Stack([1, 2])[1] == 2 and 1 in Stack([1]) and 5 not in Stack([1])",
        "assert Stack([1]) == Stack([1]) and Stack([1]) != Stack([2]) and Stack([1]) != [1]",
        "assert Stack([1]) + Stack([2]) == Stack([1, 2]) and Stack([1]) * 2 == Stack([1, 1])",
        "assert str(Stack([1])) == 'Stack([1])' and Stack.size == 0 and isinstance(Stack(), Stack)",
        "s = Stack()\ns.size = 4\nassert s.size == 4 and s.items == []",
        "try:\n    Stack().pop()\n    assert False\nexcept Empty as error:\n    assert str(error) == 'nothing here'",
        "with Stack([1]) as s:\n    assert len(s) == 1\nassert len(s) == 0",
    ]
    passes(STACK, *tests)


def test_setup_code_runs_after_the_solution(passes: Callable[..., None]) -> None:
    program = (
        "class Node:\n    def __init__(self, v):\n        self.v, self.left = v, None\n"
        "def depth(n):\n    return 0 if n is None else 1 + depth(n.left)"
    )
    passes(program, "assert depth(root) == 2", test_setup_code="root = Node(1)\nroot.left = Node(2)")


def test_what_the_prompt_defines_is_the_tests_own(judged: Callable[..., CodeResult]) -> None:
    prompt = (
        "import math\n\ndef norm(v):\n    return math.sqrt(sum(x * x for x in v))\n\n"
        "def unit(v):\n    '''A vector of length 1.'''\n"
    )
    check = "def check(candidate):\n    assert abs(norm(candidate([3, 4])) - 1) < 1e-9\n"
    row = {"test": check, "entry_point": "unit", "prompt": prompt}
    assert judged("    return [x / norm(v) for x in v]\n", **row).outcome == "accepted"
    assert judged("```python\ndef unit(v):\n    return [x / norm(v) for x in v]\n```", **row).outcome == "accepted"
    assert judged("def norm(v):\n    return 1\n\ndef unit(v):\n    return v\n", **row).passed == 0


def test_classes_that_the_prompt_defines_are_those_of_the_solution(judged: Callable[..., CodeResult]) -> None:
    prompt = (
        "class Node:\n    def __init__(self, v, next=None):\n"
        "        self.v, self.next = v, next\n    def total(self):\n"
        "        return self.v + (self.next.total() if self.next else 0)\n\ndef grow(n):\n"
    )
    check = (
        "def check(candidate):\n    n = Node(1, Node(2))\n    r = candidate(n)\n"
        "    assert r.total() == 5\n    assert n.v == 3\n"
    )
    row = {"test": check, "entry_point": "grow", "prompt": prompt}
    assert judged("def grow(n):\n    n.v += 2\n    return n", **row).outcome == "accepted"
    assert judged("def grow(n):\n    return n", **row).passed == 0


@pytest.mark.parametrize("base", ["Enum", "IntEnum", "str, Enum", "Flag"])
def test_members_of_an_enumeration_of_the_prompt_are_the_solutions(
    base: str, passes: Callable[..., None], fails: Callable[..., CodeResult]
) -> None:
    values = "'r', 'b'" if base == "str, Enum" else "1, 2"
    prompt = (
        f"from enum import *\nclass Color({base}):\n    RED, BLUE = {values}\n    @property\n"
        "    def low(self):\n        return self.name.lower()\ndef other(c):\n    '''The other color.'''\n"
    )
    tests = [
        "assert other(Color.RED) is Color.BLUE",
        "assert other(Color.BLUE).low == 'red'",
        "colors = [Color.RED]\nother(colors)\nassert colors == [Color.BLUE] and Color.RED.low == 'red'",
    ]
    honest = (
        "    if type(c) is list:\n        c[:] = [Color.BLUE]\n        return None\n"
        "    assert type(c) is Color and c.low\n    return Color.BLUE if c is Color.RED else Color.RED\n"
    )
    row = {"prompt": prompt, "entry_point": "other"}
    passes(honest, *tests, **row)
    assert fails("    return Color.RED\n", tests[0], **row).passed == 0


@pytest.mark.parametrize("form", ["(slots=True)", "(frozen=True)", "(frozen=True, slots=True)", ""])
def test_data_classes_of_the_prompt_are_the_solutions(
    form: str, passes: Callable[..., None], fails: Callable[..., CodeResult]
) -> None:
    prompt = (
        f"from dataclasses import *\n@dataclass{form}\nclass Point:\n    x: int\n    y: list\n    def size(self):\n"
        "        return abs(self.x) + len(self.y)\ndef move(p, by):\n    '''Moves it.'''\n"
    )
    honest = "    p.y.append(by)\n    return Point(p.x + by, list(p.y))\n"
    tests = [
        "assert move(Point(1, []), 2) == Point(3, [2])",
        "assert move(Point(1, []), -2).size() == 2",
        "p = Point(1, [7])\nmove(p, 5)\nassert p.y == [7, 5]",
    ]
    row = {"prompt": prompt, "entry_point": "move"}
    passes(honest, *tests, **row)
    assert fails("    return Point(0, [])\n", *tests, **row).passed == 0


def test_an_infinite_result_is_only_itself(passes: Callable[..., None], fails: Callable[..., CodeResult]) -> None:
    row = {"inputs": [[1]], "outputs": [float("inf")], "fn_name": "f", "compare": "float"}
    assert asyncio.run(passing("def f(x): return float('inf')", **row)) == 1.0
    assert asyncio.run(passing("def f(x): return 5.0", **row)) == 0.0
    approximate = ["import pytest\ndef test_f():\n    assert f(1) == pytest.approx(float('inf'))"]
    passes("def f(x): return float('inf')", *approximate)
    fails("def f(x): return 5.0", *approximate)


@pytest.mark.parametrize(
    ("program", "tests", "reason"),
    [
        ("class M:\n    def __init__(s, *a): pass\n    __eq__ = lambda s, o: True", "assert M(5) == 5", "whatever"),
        (
            "class M:\n    def __init__(s, *a): pass\n    __eq__ = lambda s, o: type(o) is int and abs(o) < 40",
            "assert M(5) == 5",
            "whatever",
        ),
        (
            "class M:\n    n = 0\n    def __eq__(s, o):\n        M.n += 1\n        return M.n % 2",
            "assert M() == 5",
            "equals",
        ),
        ("class M:\n    __lt__ = __ge__ = lambda s, o: True", "assert M() < 5", "its opposite"),
        ("class M:\n    __contains__ = lambda s, o: True", "assert 4 in M()", "contains everything"),
        ("class M:\n    __enter__ = lambda s: s\n    __exit__ = lambda s, *e: True", IN_BLOCK, "not reached"),
        ("class M: pass\nimport sys\nseen = sys._getframe(1)", "assert M() is not None", "_getframe"),
        ("class M: pass\nheld = len.__globals__", "assert M() is not None", "could reveal the tests"),
        ("class M: pass\nimport builtins\nbuiltins.len = lambda x: 3", "assert len(M()) == 3", "changes builtins.len"),
        ("import unittest\nclass M:\n    def __init__(s): raise unittest.SkipTest", OF_UNITTEST, "skips it"),
        (MADE, "assert V(1) == V(2)", "made like it"),
        (MADE, "a = V(1)\nb = [V(2)]\nassert [a] == b", "made like it"),
        (NUMBER, "assert abs(M() - 2.5) < 1e-6", "whatever"),
        (NUMBER, "import pytest\nassert M() == pytest.approx(2.5)", "whatever"),
        (NUMBER, OF_UNITTEST.replace("Equal(M().x, 3)", "AlmostEqual(M(), 2.5)"), "whatever"),
        ("class M:\n    __lt__ = lambda s, o: True", "assert M() < M()", "its opposite"),
        (
            "class M:\n    __module__ = 'builtins'\n    __lt__ = __gt__ = lambda s, o: True",
            "assert M() < 3",
            "its opposite",
        ),
        (INSIDE.format(NAMES) + "class M: pass", "run(lambda: M)\nassert M() == 3", ""),
        (PATCHES, "a = M().make()\nassert sorted([a]) == [1]", "AssertionError"),
        ("import os\nclass M:\n    def __init__(s): os.write(3, b'x' * 99)", "assert M() is not None", ""),
    ],
)
def test_what_feigns_an_answer_is_wrong_and_says_why(
    program: str, tests: str, reason: str, judged: Callable[..., CodeResult]
) -> None:
    result = judged(program, tests=tests)
    assert result.passed == 0
    assert result.assurance == "guarded"
    assert reason in result.line()


def test_a_user_can_refuse_tests_that_run_beside_the_program(judged: Callable[..., CodeResult]) -> None:
    with pytest.raises(UnusableTests, match="assurance=split"):
        judged("class M: pass", tests="assert M() is not None", assurance="split")
    assert judged("def f(x): return x", tests="assert f(1) == 1", assurance="split").assurance == "split"
