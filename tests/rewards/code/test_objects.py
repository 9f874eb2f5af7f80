"""Tests whose solution has classes, callbacks or generators, in the real sandbox: semantics are those of Python."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from grpo.plugins.pools import pool_of
from grpo.plugins.sandbox_job import Job, JobResult
from grpo.rewards.code.results import CodeResult, UnusableTests
from grpo.rewards.code.spec import passing

pytestmark = pytest.mark.usefixtures("sandbox_pools")

IN_BLOCK = "with M() as m:\n    assert m.x == 3"
MADE = "class V:\n    def __init__(s, *a): pass\n    __eq__ = lambda s, o: isinstance(o, V)\n"
NUMBER = "class M:\n    __sub__ = __abs__ = lambda s, *o: s\n    __lt__ = __eq__ = lambda s, o: True\n"
INSIDE = "def run(call):\n    space = getattr(call, '__glo' + 'bals__')\n    space.update(dict.fromkeys({}, print))\n"
NAMES = "('__true__', '__known__', '__alike__', '__ended__')"
PATCHES = (
    "class M:\n    def make(s):\n        import builtins\n        builtins.sorted = lambda x: [1]\n        return 0\n"
)
OF_UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(M().x, 3)"


def test_an_infinite_result_is_only_itself() -> None:
    row = {"inputs": [[1]], "outputs": [float("inf")], "fn_name": "f", "compare": "float"}
    assert asyncio.run(passing("def f(x): return float('inf')", **row)) == 1.0
    assert asyncio.run(passing("def f(x): return 5.0", **row)) == 0.0


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


def test_a_user_can_refuse_tests_that_run_beside_the_program(judged: Callable[..., CodeResult]) -> None:
    with pytest.raises(UnusableTests, match="assurance=split"):
        judged("class M: pass", tests="assert M() is not None", assurance="split")
    assert judged("def f(x): return x", tests="assert f(1) == 1", assurance="split").assurance == "split"


class Counted:
    """A pool that counts its runs, and tells a program in which of them it runs where that says RUN."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        self.runs += 1
        number = str(self.runs).encode()
        peers = [job.peer and replace(job.peer, stdin=job.peer.stdin.replace(b"RUN", number)) for job in jobs]
        return await pool_of().run([replace(job, peer=peer) for job, peer in zip(jobs, peers, strict=True)])

    def __getattr__(self, name: str) -> Any:
        return getattr(pool_of(), name)


@pytest.mark.parametrize(("last", "passed", "runs"), [(9, 3, 6), (3, 2, 4), (1, 2, 2)])
def test_what_an_object_helped_to_decide_has_to_hold_in_several_runs(
    last: int, passed: int, runs: int, judged: Callable[..., CodeResult]
) -> None:
    money = "class Money:\n    def __init__(s, n): s.n = n\n"
    money += f"    def __eq__(s, o): return o == s.n and RUN <= {last}\n"
    pool = Counted()
    tests = ["assert Money(4).n == 4", "assert Money(5) == 5", "assert Money(6).n == 6"]
    assert (judged(money, pool=pool, tests=tests).passed, pool.runs) == (passed, runs)


def test_plain_answers_of_an_object_are_asked_for_once(judged: Callable[..., CodeResult]) -> None:
    pool = Counted()
    program = "class Money:\n    def __init__(s, n): s.n = n\n"
    assert judged(program, pool=pool, tests=["assert Money(4).n == 4"], stop=True).passed == 1
    assert pool.runs == 1
