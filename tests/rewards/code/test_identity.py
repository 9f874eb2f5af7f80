"""What tests may ask of identity, classes, members and contexts, and what no lie gains there."""

from collections.abc import Callable

import pytest

from grpo.rewards.code.results import CodeResult

pytestmark = pytest.mark.usefixtures("sandbox_pools")

KINDS = "class A:\n    'An A.'\nclass B(A): pass\ndef made(k):\n    'Makes.'\n    return B() if k else A()\n"
LEVELS = """
from enum import IntEnum, Enum
class L(IntEnum):
    LOW = 1
    HIGH = 2
class C(str, Enum):
    RED = 'r'
def level(n): return L.HIGH if n > 5 else L.LOW
def named(l): return l.name.lower()
def shade(c): return c.value
"""
IGNORE = """
class Ignore:
    def __init__(self, *kinds): self.kinds = kinds
    def __enter__(self): return self
    def pop(self): return 1
    def look(self): return 0
    def __exit__(self, kind, error, trace): return kind is not None and issubclass(kind, self.kinds)
"""


def test_an_argument_that_comes_back_is_the_same_object(
    passes: Callable[..., None], fails: Callable[..., CodeResult]
) -> None:
    passes("def f(x):\n    x.append(1)\n    return x", "x = []\nassert f(x) is x", "x = []\ny = f(x)\nassert y is x")
    passes("def f(x): return x[:]", "x = [1]\nassert f(x) is not x", "x = [1]\ny = f(x)\nassert y is not x and y == x")
    fails("def f(x): return x", "x = [1]\nassert f(x) is not x")
    fails("def f(x): return x[:]", "x = [1]\nassert f(x) is x")


def test_the_class_of_an_object_is_the_class_that_the_tests_know(
    passes: Callable[..., None], fails: Callable[..., CodeResult]
) -> None:
    asked = ("type(made(1)) is B", "type(made(0)) is not B", "type(made(1)).__name__ == 'B'", "made(1).__class__ == B")
    passes(KINDS, *(f"assert {each}" for each in asked), "assert type(made(0)) in (A,) and type(made) is not A")
    passes(KINDS, "assert made.__doc__ == 'Makes.' and A.__doc__ == 'An A.'")
    passes(
        "def f(x): return x", "for type in 'ab':\n    assert f(type) == type", "assert (1).__class__ is f(1).__class__"
    )
    fails(KINDS.replace("B() if k else A()", "A()"), "assert type(made(1)) is B")


def test_no_class_of_the_solution_is_a_built_in_one(fails: Callable[..., CodeResult]) -> None:
    named = "class int:\n    __class__ = property(lambda self: (1).__class__)\ndef f(x): return int()"
    fails(named, "assert type(f(1)) is int", "assert type(f(1)).__name__ == 'int'")


def test_members_that_are_numbers_or_texts_keep_name_and_value(passes: Callable[..., None]) -> None:
    passes(LEVELS, "assert level(9) == L.HIGH == 2", "assert level(9) is L.HIGH", "assert level(9).name == 'HIGH'")
    passes(LEVELS, "assert named(L.LOW) == 'low' and named(level(9)) == 'high'", "assert [0, 5][level(1)] == 5")
    passes(LEVELS, "assert C.RED == 'r' and C.RED.value == 'r' and shade(C.RED) == 'r' and C('r') is C.RED")


def test_a_member_is_what_it_holds_whatever_its_class_says(fails: Callable[..., CodeResult]) -> None:
    liar = "from enum import IntEnum\nclass L(IntEnum):\n    A = 1\n    __eq__ = lambda self, other: True\n"
    fails(liar + "    __hash__ = None\ndef f(x): return L.A", "assert f(1) == 4")


STACK = "class Stack(list):\n    def push(self, x): self.append(x)\n    def peek(self): return self[-1]\n"
CACHE = """
from collections import OrderedDict
class Cache(OrderedDict):
    def __init__(self, most):
        super().__init__()
        self.most = most
    def put(self, key, value):
        self[key] = value
        if len(self) > self.most: self.popitem(last=False)
"""
POINT = """
from typing import NamedTuple
class P(NamedTuple):
    x: int
    y: int = 0
    def norm(self): return self.x + self.y
"""


def test_a_class_that_is_a_collection_too_keeps_its_methods(passes: Callable[..., None]) -> None:
    grown = "s = Stack()\ns.push(1)\ns.push(2)\nassert s.peek() == 2 and s.pop() == 2 and s == [1] == list(s)"
    passes(
        STACK, grown, "assert Stack([3]) != [4] and not Stack() and 3 in Stack([3])", "assert len(Stack([2, 1])) == 2"
    )
    kept = "c = Cache(1)\nc.put(1, 1)\nc.put(2, 2)\nassert c == {2: 2} and 1 not in c and list(c.items()) == [(2, 2)]"
    passes(CACHE, kept)
    passes(POINT, "a, b = P(1, 2)\nassert P(a, b).norm() == 3 and P(1) == (1, 0) and P(1, 2) < P(2) and P(1).x == 1")
    passes(STACK + "def made(): return Stack([1])", "assert made() == [1] and isinstance(made(), list)")


def test_a_collection_equals_what_it_holds_and_not_what_it_says(fails: Callable[..., CodeResult]) -> None:
    liar = "class Bag(list):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n    def add(s): pass\n"
    fails(liar, "assert Bag([1]) == [4]")
    fails(liar, "assert not Bag([1]) != [4]")
    fails(liar.replace("Bag", "answer"), "assert [4] == answer([1])")


def test_tests_may_be_coroutines(passes: Callable[..., None], judged: Callable[..., CodeResult]) -> None:
    awaited = "import asyncio\nasync def run():\n    assert await f(1) == 2\nasyncio.run(run())"
    passes("async def f(x): return x + 1", awaited)
    marked = "import pytest\n@pytest.mark.asyncio\nasync def test_f():\n    assert await f(1) == 2\n"
    assert judged("async def f(x): return x + 1", tests=marked).outcome == "accepted"
    assert judged("async def f(x): return x", tests=marked).outcome == "wrong_answer"


def test_fixtures_of_a_test_class_are_its_own(judged: Callable[..., CodeResult]) -> None:
    tests = "import pytest\nclass TestF:\n    @pytest.fixture\n    def two(self): return 2\n"
    tests += "    def test_f(self, two): assert f(two) == 3\n"
    assert judged("def f(x): return x + 1", tests=tests).outcome == "accepted"


def test_a_context_of_the_solution_sees_what_was_raised_in_it(passes: Callable[..., None]) -> None:
    passes(IGNORE, "with Ignore(ValueError, KeyError):\n    raise ValueError('x')\nassert Ignore(KeyError).look() == 0")
    another = "import pytest\nwith pytest.raises(KeyError):\n    with Ignore(ValueError):\n        raise KeyError('x')"
    passes(IGNORE, another)
    passes(IGNORE, "with Ignore() as i:\n    assert i.pop() == 1")


def test_a_failed_assertion_cannot_be_swallowed(passes: Callable[..., None], fails: Callable[..., CodeResult]) -> None:
    fails(IGNORE, "with Ignore(Exception) as i:\n    assert i.look() == 5\n    assert i.look() == 6")
    quiet = "def run(call):\n    try: call()\n    except BaseException: pass\n"
    fails(quiet, "def call():\n    assert 1 == 2\nrun(call)\nassert run")
    expected = "import pytest\ndef call():\n    assert 1 == 2\nwith pytest.raises(AssertionError):\n    run(call)"
    passes("def run(call): call()", expected)
    retry = "def run(call):\n    try: return call()\n    except AssertionError: return run(call)\n"
    third = "n = []\ndef call():\n    n.append(1)\n    if len(n) < 3: raise AssertionError\n    return 7\n"
    passes(retry, third + "assert run(call) == 7")


CLEANED = """
c = C()
try:
    c.go()
finally:
    try:
        with c: pass
    except KeyError: pass
assert c == 4
"""


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("async def enc(x): return 0\ndef dec(x): return x", "assert dec(enc('a')) == 'a'"),
        (
            "class C:\n    def __enter__(self): return self\n    def __exit__(self, *e): raise KeyError\n"
            "    def go(self): raise ModuleNotFoundError('numpy')",
            CLEANED,
        ),
    ],
)
def test_a_solution_cannot_make_itself_undecided(fails: Callable[..., CodeResult], program: str, tests: str) -> None:
    fails(program, tests)


def test_threads_that_ask_for_more_stack_than_there_is_get_what_there_is(judged: Callable[..., CodeResult]) -> None:
    program = (
        "import sys, threading\nsys.setrecursionlimit(10**7)\nthreading.stack_size(512 * 2**20)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(int(input()))))\nt.start()\nt.join()"
    )
    assert judged(program, inputs=["50000\n"], outputs=["50000\n"]).outcome == "accepted"
