"""Tests that call functions with plain data: which tests are of that kind, what crosses, and what is compared."""

import random
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from grpo.rewards.code.guest.near import far, near
from grpo.rewards.code.guest.plain import Malformed, NotPlain, decode, encode
from grpo.rewards.code.results import CodeResult
from grpo.rewards.code.tests_plan import plan_tests

pytestmark = pytest.mark.usefixtures("sandbox_pools")

CALLS = [
    "assert f(1) == 2",
    "assert abs(f(1.5) - 2) < 1e-6",
    "for n in range(3):\n    assert f(n) == n * n",
    "assert sorted(f([2, 1])) == [1, 2]",
    "xs = [2, 1]\nf(xs)\nassert xs == [1, 2]",
    "import pytest\ndef test():\n    with pytest.raises(ValueError):\n        f(-1)",
    "assert list(map(f, [1, 2])) == [2, 3]",
    "r = f(3)\nassert r[0] == 1 and len(r) == 2",
    "assert f('a').upper() == 'B' and f('a') == 'b'",
    "import os, sys, time\nsys.path.append(os.path.dirname(__file__))\nassert f(1) == 2",
    "assert sorted(f('a'), key=lambda w: w.lower()) == ['a', 'B']",
    "r = f(3)\nassert str(r) == '3' and r == 3",
]
OBJECTS = [
    "assert Money(5) == 5",
    "assert f(lambda x: x) == 3",
    "assert f(3).value == 3",
    "x = [1]\nassert f(x) is x",
    "import random\nrandom.seed(3)\nassert f(3) == 2",
    "def test(capsys):\n    f(3)\n    assert capsys.readouterr().out == '3'",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)",
    "assert f(1) * 2 == f(2)",
    "import asyncio\nassert asyncio.run(f(1)) == 2",
    "it = iter([1, 2])\nassert f(it) == 1",
    "@f(3)\ndef g(): return 7\nassert g() == 7",
    "import os\nassert f(1) == os.sep",
    "b = f([[1]])\nb[0].append(2)\nassert b == [[1, 2]]",
    "assert str(f(3)) == '3'",
    "assert f'{f(3)}' == '3'",
    "assert [p.x for p in f(3)] == [1]",
    "r = f(3)\nfor p in r:\n    assert p.count == 1",
    "assert sorted(f(3), key=lambda p: p.count) == [1]",
]


@pytest.mark.parametrize(("tests", "kind"), [*((t, "calls") for t in CALLS), *((t, "objects") for t in OBJECTS)])
def test_the_tests_choose_the_judge(tests: str, kind: str) -> None:
    assert plan_tests((tests,)).kind == kind


@pytest.mark.parametrize(
    ("program", "passed", "reason"),
    [
        ("def f(n): return n + 1", 3, "accepted"),
        ("def f(n): return n + 1.0", 3, "accepted"),
        ("def f(n): return 2", 1, "another value than expected: assert f(2) == 3 (f(2) is 2)"),
        ("def f(n):\n    if n == 2: raise KeyError('two')\n    return n + 1", 2, "runtime_error: KeyError: 'two'"),
        ("def f(n) return", 0, "compile_error: on loading: SyntaxError"),
        ("g = 3", 0, "NameError: name 'f' is not defined"),
        ("import os\ndef f(n):\n    if n == 2: os._exit(0)\n    return n + 1", 2, "test 2 runtime_error"),
        ("def f(n):\n    while n == 2: pass\n    return n + 1", 2, "time_cpu"),
        ("class Yes(int):\n    __eq__ = lambda *a: True\ndef f(n): return Yes(9)", 0, "another value"),
        ("class Yes:\n    __eq__ = lambda *a: True\ndef f(n): return Yes()", 0, "no plain data"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\ndef f(n): return n + 1",
            3,
            "accepted",
        ),
        (
            "import os\nfor n in range(9):\n    try: os.write(n, b' [\"value\", 3, []]\\n')\n    except OSError: pass\n"
            "def f(n): return 0",
            0,
            "",
        ),
        ("def f(n): return [0] * 10**5", 0, "another value"),
        ("def f(n):\n    n = []\n    for _ in range(999): n = [n]\n    return n", 0, "no plain data"),
    ],
)
def test_each_assertion_about_answers_is_a_test(
    program: str, passed: int, reason: str, judged: Callable[..., CodeResult]
) -> None:
    result = judged(program, tests=["assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4"], seconds=2.0)
    assert (result.passed, result.assurance) == (passed, "split"), result.line()
    assert reason in result.line()


LOOKED_AT = """
import pytest
def test_name():
    value = f(2)
    assert value[0] == 1 and len(value) == 2
def test_loop():
    for n, wanted in [(3, [1, 3]), (4, [1, 2, 4])]:
        assert sorted(f(n)) == wanted
def test_error():
    with pytest.raises(ValueError):
        f(0)
"""


@pytest.mark.parametrize(
    ("program", "passed"),
    [
        ("if not n: raise ValueError\n    return [d for d in range(1, n + 1) if n % d == 0]", 3),
        ("return (d for d in range(1, n + 1) if n % d == 0)", 2),
        ("if not n: raise KeyError\n    return [1, n]", 1),
        ("return range(10**18)", 0),
        ("return n", 0),
    ],
)
def test_what_tests_say_of_answers_is_decided_as_python_would(
    program: str, passed: int, judged: Callable[..., CodeResult]
) -> None:
    result = judged(f"def f(n):\n    {program}", tests=LOOKED_AT)
    assert (result.passed, result.count, result.assurance) == (passed, 3, "split"), result.line()


VALUES: list[Any] = [
    *(None, True, 0, -(2**70), 1.5, float("inf"), 3 + 4j, "\ud800é", b"\xff", bytearray(b"a"), [], [1, [2]], (1,)),
    *(
        {1: "a", "b": [2]},
        {1, 2},
        frozenset({3}),
        range(3),
        Decimal("1.10"),
        Fraction(1, 3),
        Counter("aab"),
        deque([1]),
    ),
    datetime(2026, 1, 2, 3, tzinfo=UTC),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_data_crosses_as_it_is(value: Any) -> None:
    read = decode(encode(value))
    assert read == value
    assert type(read) is type(value)


def test_what_is_no_plain_data_does_not_cross() -> None:
    class Yes(int):
        pass

    for value in (Yes(3), object(), len, [Yes(1)], {1: object()}, int):
        with pytest.raises(NotPlain):
            encode(value)
    assert type(decode(encode(Yes(3), convert=True))) is int
    assert decode(encode((n for n in (1, 2)), convert=True)) == [1, 2]


@pytest.mark.parametrize(
    "wire",
    [
        ["x"],
        [],
        ["i", "zz"],
        ["f", "1"],
        ["d", 1],
        ["r", 1.5],
        ["s", ["l"]],
        {"a": 1},
        ["date", 0, 0, 0],
        ["b", 3],
        ["@", 0],
        ["u", "x"],
    ],
)
def test_a_wire_that_nobody_wrote_is_malformed(wire: Any) -> None:
    with pytest.raises(Malformed):
        decode(wire)


@pytest.mark.parametrize("value", [5, -1, 2.5, "hello world", "", [1, "a"], (1, 2), {"k": 3}, {1, 2}, True, b"ab"])
@pytest.mark.parametrize("change", [near, far])
def test_another_value_is_of_the_same_type(value: Any, change: Callable[..., Any]) -> None:
    for trial in range(6):
        other = change(value, random.Random(trial), trial)
        assert type(other) is type(value)
        assert other != value


def test_other_numbers_are_off_by_odd_numbers_as_often_as_by_even_ones() -> None:
    for change in (near, far):
        steps = [change(42, random.Random(trial), trial) - 42 for trial in range(6)]
        assert [step % 2 for step in steps] == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("program", "tests", "reason"),
    [
        ("class X: pass\ndef f(n): return X()", "assert f(3) == 3", "no plain data"),
        (
            "def f(n): return float('nan')",
            "e = 0\nfor i in range(3):\n    e = max(e, abs(f(i) - i))\nassert e < 1",
            "not a num",
        ),
        ("def f(d):\n    d.clear()\n    return {}", "d = {1: 2}\nassert f(d) == {v: k for k, v in d.items()}", ""),
        ("def f(xs): return []", "for a in f([1]):\n    assert a == 1", "no assertion"),
        (
            "k = 0\ndef f(n):\n    global k\n    k += 1\n    return 0 if k % 2 else n",
            "for n in (10, 17):\n    assert f(n) ** 2 <= n < (f(n) + 1) ** 2",
            "its answers depend on what it was asked before",
        ),
        (
            "def f(n): return undefined",
            "import pytest\ndef test():\n    with pytest.raises(Exception): f(1)",
            "undefined",
        ),
        ("def f(n): raise ValueError", "try:\n    assert f(3) == 5\nexcept ValueError:\n    pass", "no assertion"),
    ],
)
def test_what_passes_by_what_the_tests_do_not_ask_is_wrong(
    program: str, tests: str, reason: str, judged: Callable[..., CodeResult]
) -> None:
    result = judged(program, tests=tests)
    assert (result.passed, result.assurance) == (0, "split")
    assert reason in result.line()
