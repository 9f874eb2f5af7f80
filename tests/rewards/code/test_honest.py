"""Right programs in the ways that models write them are accepted; what cannot be judged is no fault of theirs."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo.plugins.sandbox_pools import close_pools, pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import CodeResult, UnusableTests
from grpo.rewards.code.task import Columns, task_of

pytestmark = pytest.mark.slow

_LINES = Path(__file__).with_name("honest.jsonl").read_text(encoding="ascii").splitlines()
HONEST = {case["name"]: case for case in map(json.loads, _LINES)}
LEFT_OPEN = {
    "a library that tests of plain calls need": "def test_f():\n    import numpy\n    assert f(1) == numpy.int64(4)",
    "a library that is not here": "def test_f():\n    import numpy_that_is_not_here\n    assert f(1) == 4",
}


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, CodeResult]]:
    """How every program did, judged side by side."""

    async def every() -> list[CodeResult]:
        judged = await asyncio.gather(*(_judged(case["completion"], case["row"]) for case in HONEST.values()))
        return [result for _, result in judged]

    yield dict(zip(HONEST, asyncio.run(every()), strict=True))
    close_pools()


def _judged(completion: str, row: dict[str, Any]) -> Coroutine[Any, Any, tuple[Any, CodeResult]]:
    return judge(pool_of(), completion, task_of(Columns(**row)), allowance=Allowance(seconds=5.0))


@pytest.mark.core
@pytest.mark.parametrize("name", HONEST)
def test_a_right_program_is_accepted(results: dict[str, CodeResult], name: str) -> None:
    assert results[name].outcome == "accepted", results[name].line()


@pytest.mark.parametrize("tests", LEFT_OPEN.values(), ids=LEFT_OPEN)
def test_tests_that_cannot_run_decide_nothing(results: dict[str, CodeResult], tests: str) -> None:
    with pytest.raises(UnusableTests):
        asyncio.run(_judged("class np:\n    allclose = lambda *a: True\ndef f(x):\n    return 4", {"tests": tests}))


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (
            "class pytest:\n    approx = lambda wanted: wanted\ndef f(x):\n    return 0",
            "assert f(1) == pytest.approx(4)",
        ),
        (
            "class Find_It:\n    def __init__(self, x): pass\n    def __contains__(self, item): return True",
            "assert 4 in Find_It(1)",
        ),
        (
            "class Foo: pass\nclass f:\n    def __init__(self, x): pass\n    def __contains__(self, item): return True",
            "from solution import Foo\nassert Foo() and 4 in f(1)",
        ),
        (
            "class SkipTest(Exception): pass\ndef f(call):\n    try: call()\n    except Exception: raise SkipTest",
            "import unittest\ndef call(): raise unittest.SkipTest\ndef test(): assert f(call) == 4",
        ),
        ("def f(x):\n    raise ModuleNotFoundError('numpy')", "assert f(1) == 4"),
        ("class E(ModuleNotFoundError): pass\ndef f(x):\n    raise E('numpy')", "assert f(1) == 4"),
        ("def f(key):\n    return key({4: 4})", "assert f(lambda d: (n for n in d)) == 4"),
        ("async def f(x):\n    return 3", "import asyncio\nassert asyncio.run(f(1)) == 4"),
    ],
)
def test_what_honest_programs_are_allowed_does_not_help_the_others(
    results: dict[str, CodeResult], program: str, tests: str
) -> None:
    _, result = asyncio.run(_judged(program, {"tests": tests, "entry_point": "" if "Find_It" in program else "f"}))
    assert result.passed == 0, result.line()
