"""Tests whose solution has classes, callbacks or generators, in the real sandbox: semantics are those of Python."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grpo.plugins.pools import pool_of
from grpo.plugins.sandbox_job import Job, JobResult
from grpo.rewards.code.guest.near import ALTERED
from grpo.rewards.code.results import CodeResult, UnusableTests
from grpo.rewards.code.spec import passing

pytestmark = pytest.mark.usefixtures("sandbox_pools")

IN_BLOCK = "with M() as m:\n    assert m.x == 3"
MADE = "class V:\n    def __init__(s, *a): pass\n    __eq__ = lambda s, o: isinstance(o, V)\n"
MADE += "    of = classmethod(lambda c, *a: c())\n    __add__ = lambda s, o: V()\n"
BELOW = "class M:\n    __eq__ = lambda s, o: abs(getattr(o, 'expected', o)) < 17\n"
BELOW += "    __sub__ = __rsub__ = lambda s, o: 0.0 if abs(o) < 17 else 99.0\n"
NAMED, HANDED = "codeop.compile_command", "functools.singledispatch"
REACHED = "unittest.TestCase.assertAlmostEqual.__defaults__"
EXPECTING = """import pytest
def test_a():
    with pytest.raises(AssertionError):
        assert 0
    assert M() == 5
"""
YES = "class M:\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n"
YES += "    __lt__ = __gt__ = lambda s, o: True\n    __truediv__ = lambda s, o: 1.0\n"
NUMBER = "class M:\n    __sub__ = __abs__ = lambda s, *o: s\n    __lt__ = __eq__ = lambda s, o: True\n"
INSIDE = "def run(call):\n    space = getattr(call, '__glo' + 'bals__')\n    space.update(dict.fromkeys({}, print))\n"
NAMES = "('__true__', '__known__', '__alike__', '__ended__')"
PATCHES = (
    "class M:\n    def make(s):\n        import builtins\n        builtins.sorted = lambda x: [1]\n        return 0\n"
)
ASKING = "def ask():\n    assert M() is not None\n"
FIXTURE = "import pytest\n@pytest.fixture\ndef m():\n    return M()\ndef test(m):\n    assert m.x == 4"
OF_UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(M().x, 3)"


HONEST = """
import math
class M:
    def __init__(s, x=0.0, *more): s.x = float(x)
    def __eq__(s, o): return math.isclose(s.x, getattr(o, "x", o), abs_tol=0.5)
    def __lt__(s, o): return s.x < getattr(o, "x", o)
    def __sub__(s, o): return max(0.0, s.x - o)
    def __truediv__(s, o): return M(s.x / o)
    def __abs__(s): return M(abs(s.x))
    def __float__(s): return s.x
class Odd:
    def __init__(s, n): s.n = n
    def __eq__(s, o): return (s.n - o) % 2 == 0
class Near(M):
    def __sub__(s, o): return s.x - o
class Interval:
    def __init__(s, a, b): s.items = range(a, b)
    def __eq__(s, o): return s.items == o.items
class Event:
    def __init__(s, start, title, *more): s.start, s.title = start, title
    def __eq__(s, o): return s.start == o.start
Point = __import__("collections").namedtuple("Point", "x y")
Point.__new__.__defaults__ = (0, 0)
class Once:
    made = 0
    def __init__(s, name): Once.made += 1; s.name = name
    def __eq__(s, o): return s.name.lower() == o.name.lower()
"""


@pytest.mark.parametrize(
    "tests",
    [
        "assert abs(M(2.5) - 2.5) < 1e-6\nassert abs(M(0) / 5) < 1",
        OF_UNITTEST.replace("Equal(M().x, 3)", "AlmostEqual(Near(12.3), 12, delta=0.5)"),
        "import pytest\nassert M(12.3).x == pytest.approx(12, abs=0.5)",
        "assert Interval(3, 1) == Interval(5, 2)\nassert Interval(float('inf') and 1, 3) == Interval(1, 3)",
        "from datetime import datetime as D\nassert Event(D(2024, 5, 1), 'a') == Event(D(2024, 5, 1), 'b')",
        "assert Event([], 5) == Event([], 6)\nassert Event([], 5) == Event([], 5)",
        "a, b = Event([], 5), Event([], 6)\nassert a == Event([], 7)\na.start.append(1)\nassert a.start == [1]",
        "assert Point() == (0, 0)\nassert Point(1) in [Point(1, 0)]\nassert M(1) < M(2)",
        "assert Odd(4) == 8\nassert Odd(7) == 1",
        "assert all(Event(a, 'a') == Event(a, 'b') for a in (None, [], '', M))",
        "assert Event(Event(True, 1), 1) == Event(Event(True, 2), 2)",
        "import enum\nclass K(enum.Enum):\n    A = 1\n    B = 2\nassert Event(K.A, 1) == Event(K.A, 2)",
        "assert all(Once(a) == Once(a.upper()) for a in 'ab')\nassert Once.made == 4",
        "import operator\nassert all(map(operator.eq, [M(1), M(2)], [1, 2]))\nassert M(3).__eq__(M(3))",
        "assert M(4) in (M(k * k) for k in (1, 2))\nassert all(a < b for a, b in zip([M(1), M(2)], [M(2), M(3)]))",
    ],
)
def test_altered_tests_blame_no_honest_object(tests: str, judged: Callable[..., CodeResult]) -> None:
    result = judged(HONEST, tests=tests)
    assert result.line() == f"accepted: {result.count} of {result.count} tests passed; assurance guarded"


def test_an_infinite_result_is_only_itself() -> None:
    row = {"inputs": [[1]], "outputs": [float("inf")], "fn_name": "f", "compare": "float"}
    assert asyncio.run(passing("def f(x): return float('inf')", **row)) == 1.0
    assert asyncio.run(passing("def f(x): return 5.0", **row)) == 0.0


@pytest.mark.parametrize(
    ("program", "tests", "reason"),
    [
        (
            "class M:\n    def __init__(s, *a): pass\n    __eq__ = lambda s, o: True",
            "assert M(5) == 5",
            ALTERED,
        ),
        (
            "class M:\n    def __init__(s, *a): pass\n    __eq__ = lambda s, o: type(o) is int and abs(o) < 40",
            "assert M(5) == 5",
            ALTERED,
        ),
        ("class M:\n    __lt__ = __ge__ = lambda s, o: True", "assert M() < 5", ALTERED),
        ("class M:\n    __contains__ = lambda s, o: True", "assert 4 in M()", ALTERED),
        ("class M:\n    __enter__ = lambda s: s\n    __exit__ = lambda s, *e: True", IN_BLOCK, "not reached"),
        ("class M: pass\nimport sys\nseen = sys._getframe(1)", "assert M() is not None", "_getframe"),
        ("class M: pass\nheld = len.__globals__", "assert M() is not None", "could reveal the tests"),
        ("class M: pass\nimport builtins\nbuiltins.len = lambda x: 3", "assert len(M()) == 3", "changes builtins.len"),
        ("import unittest\nclass M:\n    def __init__(s): raise unittest.SkipTest", OF_UNITTEST, "skips it"),
        (MADE, "assert V(1) + V(2) == V(3)", ALTERED),
        (MADE, "a = V(1)\nb = V(V(2), 3)\nassert a == b", ALTERED),
        (
            MADE,
            "def test():\n    assert V.of('#ff0000') == V.of(255, 0, 0)\n    assert V.of('#00ff00') == V.of(0, 255, 0)",
            ALTERED,
        ),
        (YES, "assert M() in (k * k for k in (3, 4))", ALTERED),
        (YES, "import operator\nassert all(map(operator.eq, [M(), M()], [1, 2]))", ALTERED),
        (YES, "assert M().__eq__(12)", ALTERED),
        (YES, "assert all(a < b for a, b in [(M(), 3), (M(), 4)])", ALTERED),
        (YES, "assert abs(M() / 12.5 - 1) < 1e-6", ALTERED),
        (BELOW, "import pytest\nassert M() == pytest.approx(3.25)", ALTERED),
        (
            BELOW,
            "import pytest\nassert [M(), M()] == pytest.approx([3.25, 4.5], abs=1e-3)",
            ALTERED,
        ),
        (
            BELOW,
            OF_UNITTEST.replace("Equal(M().x, 3)", "AlmostEqual(M(), 2.5, delta=0.01)"),
            ALTERED,
        ),
        (BELOW, "assert abs(M() - 2.5) < 1e-6", ALTERED),
        (YES, EXPECTING, ALTERED),
        (f"import codeop\n{NAMED}('x = 1\\n', '<tests>', 'exec')\nclass M: pass", "assert M() is not None", "compile"),
        (f"import functools, sys\n{HANDED}(sys._getframe)(0)\nclass M: pass", "assert M() is not None", "_getframe"),
        (f"import unittest\n{REACHED} = (-5, None, None)\nclass M: pass", "assert M() is not None", "__setattr__"),
        (
            YES,
            "def is_5(n): assert n == 5\ndef is_6(n): assert n == 6\nis_5(M())\nis_6(M())",
            ALTERED,
        ),
        (NUMBER, "assert abs(M() - 2.5) < 1e-6", ALTERED),
        (NUMBER, "import pytest\nassert M() == pytest.approx(2.5)", ALTERED),
        (NUMBER, OF_UNITTEST.replace("Equal(M().x, 3)", "AlmostEqual(M(), 2.5)"), ALTERED),
        ("class M:\n    __lt__ = lambda s, o: True", "assert M() < M()", ALTERED),
        (
            "class M:\n    __module__ = 'builtins'\n    __lt__ = __gt__ = lambda s, o: True",
            "assert M() < 3",
            ALTERED,
        ),
        (INSIDE.format(NAMES) + "class M: pass", "run(lambda: M)\nassert M() == 3", ""),
        ("class M: pass\ndef look(f): return f.__code__", ASKING + "look(ask)\nassert M() is not None", "__getattr__"),
        (PATCHES, "a = M().make()\nassert sorted([a]) == [1]", "another value"),
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


@pytest.mark.parametrize(
    ("tests", "quoted"),
    [
        ("assert M().x == 4\nassert M().x == 3", "assert M().x == 4"),
        (
            "import pytest\n@pytest.fixture\ndef m():\n    return M()\ndef test(m):\n    assert m.x == 4",
            "assert m.x == 4",
        ),
        (OF_UNITTEST.replace("3", "4"), "assert M().x == 4"),
    ],
)
def test_an_assertion_that_fails_is_quoted(tests: str, quoted: str, judged: Callable[..., CodeResult]) -> None:
    assert f"another value than expected: {quoted}; assurance" in judged("class M:\n    x = 3", tests=tests).line()


def test_a_solution_finds_no_class_of_the_judge_that_has_methods(judged: Callable[..., CodeResult]) -> None:
    program = "import types\nkinds = getattr(object, '__sub' + 'classes__')()\nclass M:\n    found = [\n"
    program += "        kind for kind in kinds if kind.__module__.startswith('grpo.rewards.code')\n"
    program += "        and any(isinstance(each, types.FunctionType) for each in vars(kind).values())\n    ]\n"
    result = judged(program, tests="assert M().found == []")
    assert result.line() == "accepted: 1 of 1 tests passed; assurance guarded"


def test_a_user_can_refuse_tests_that_run_beside_the_program(judged: Callable[..., CodeResult]) -> None:
    with pytest.raises(UnusableTests, match="assurance=split"):
        judged("class M: pass", tests="assert M() is not None", assurance="split")
    assert judged("def f(x): return x", tests="assert f(1) == 1", assurance="split").assurance == "split"


class Counted:
    """A pool that counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        self.runs += 1
        return await pool_of().run(jobs)

    def __getattr__(self, name: str) -> Any:
        return getattr(pool_of(), name)


@pytest.mark.parametrize(("read", "runs"), [("", 7), (".n", 2)])
def test_objects_are_asked_about_other_values_in_more_runs_than_plain_answers(
    read: str, runs: int, judged: Callable[..., CodeResult]
) -> None:
    program = "class Money:\n    def __init__(s, n): s.n = n\n    __eq__ = lambda s, o: s.n == getattr(o, 'n', o)\n"
    pool = Counted()
    tests = ["assert Money(4).n == 4", f"assert Money(5){read} == 5"]
    assert judged(program, pool=pool, tests=tests).passed == 2
    assert pool.runs == runs
