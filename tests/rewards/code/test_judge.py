"""What the judge accepts, rejects and cannot decide, in the real sandbox."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import Job, JobOutcome, JobResult
from grpo.rewards.code.results import CodeResult, UnusableTests

pytestmark = pytest.mark.usefixtures("sandbox_pools")
DOUBLE = "def double(x):\n    return 2 * x\n"


def test_every_assertion_is_a_test_of_its_own(judged: Callable[..., CodeResult]) -> None:
    result = judged(DOUBLE, tests=["assert double(1) == 2", "assert double(1) == 3", "assert double(3) == 6"])
    assert (result.outcome, result.passed, result.count, result.fraction) == ("partial", 2, 3, pytest.approx(2 / 3))
    assert result.line().startswith("partial: 2 of 3 tests passed; test 2 wrong_answer: another value")
    source = (
        "import math\n\nvalue = double(2)\nassert value == 4\nassert math.sqrt(double(8)) == 4\nassert double(1) == 3\n"
    )
    assert judged(DOUBLE, tests=source).passed == 2


def test_nothing_runs_after_the_first_failure_when_that_is_asked_for(judged: Callable[..., CodeResult]) -> None:
    result = judged(DOUBLE, tests=["assert double(1) == 3", "assert double(1) == 2"], stop=True)
    assert (result.passed, result.count, len(result.tests)) == (0, 2, 1)


def test_assertions_of_a_check_function_count_one_by_one(judged: Callable[..., CodeResult]) -> None:
    check = (
        "def check(candidate):\n    assert candidate(1) == 2\n    for n in (2, 3):\n        assert candidate(n) == n\n"
    )
    result = judged(DOUBLE, test=check + "    assert True\n", entry_point="double")
    assert (result.passed, result.count) == (1, 2)


def test_a_test_function_may_call_a_check_that_counts_by_itself(judged: Callable[..., CodeResult]) -> None:
    tests = "def check(f):\n    assert f(1) == 2\ndef test_all():\n    check(double)\n    assert double(2) == 4\n"
    tests += "check(double)\n"
    result = judged(DOUBLE, tests=tests)
    assert (result.outcome, result.count) == ("accepted", 2), result.line()


def test_test_functions_fixtures_and_parameters_as_pytest_has_them(judged: Callable[..., CodeResult]) -> None:
    tests = """
import pytest
from solution import double as twice

@pytest.fixture
def three():
    yield 3

@pytest.mark.parametrize("given, wanted", [(1, 2), (2, 4)])
def test_numbers(given, wanted):
    assert twice(given) == wanted

def test_fixture(three):
    assert twice(three) == pytest.approx(6.0000001)

def test_error():
    with pytest.raises(TypeError, match="unsupported"):
        twice(None)

class TestMore:
    def setup_method(self):
        self.value = 5
    def test_value(self):
        assert twice(self.value) == 10
    def test_wrong(self):
        assert twice(self.value) == 11
"""
    result = judged(DOUBLE, tests=tests)
    assert (result.passed, result.count) == (4, 5), result.line()


def test_test_cases_of_unittest(judged: Callable[..., CodeResult]) -> None:
    tests = """
import unittest
import solution

class Tests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.two = 2
    def setUp(self):
        self.three = 3
    def test_two(self):
        self.assertEqual(solution.double(self.two), 4)
    def test_three(self):
        self.assertEqual(solution.double(self.three), 7)
    def test_error(self):
        with self.assertRaises(TypeError):
            solution.double(None)

if __name__ == "__main__":
    unittest.main()
"""
    result = judged(DOUBLE, tests=tests)
    assert (result.passed, result.count) == (2, 3), result.line()


def test_a_function_that_the_library_has_too_must_still_be_written(judged: Callable[..., CodeResult]) -> None:
    tests = ["assert gcd(4, 6) == 2", "assert factorial(3) == 6"]
    assert judged("pass", tests=tests).passed == 0
    right = "from math import factorial\ndef gcd(a, b):\n    return gcd(b, a % b) if b else a"
    assert judged(right, tests=tests).passed == 2


def test_calls_with_expected_results(judged: Callable[..., CodeResult]) -> None:
    row = {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, [7]]}
    assert judged("class Solution:\n    def add(self, a, b):\n        return a + b", **row).outcome == "accepted"
    lines = {"fn_name": "pair", "inputs": ["1\n[2]"], "outputs": ["[1, [2]]"]}
    assert judged("def pair(a, b):\n    return (a, b)", **lines).outcome == "accepted"
    assert judged("def pair(a, b):\n    return (a,)", **lines).outcome == "wrong_answer"
    keyed = {"fn_name": "count", "inputs": [[3]], "outputs": [{"3": 1}]}
    assert judged("def count(x):\n    return {x: 1}", **keyed).outcome == "accepted"
    assert judged("def count(x):\n    return {x: 2}", **keyed).outcome == "wrong_answer"
    wrapped = json.dumps({"fn_name": "add", "inputs": [[1, 1]], "outputs": [3]})
    assert judged("def add(a, b):\n    return a + b", tests=wrapped).passed == 0


def test_programs_that_print(judged: Callable[..., CodeResult]) -> None:
    row = {"inputs": ["1 2\n", "3 4\n", "5 5\n"], "outputs": ["3", "7\n", "10"]}
    program = "a, b = map(int, input().split())\nprint(a + b)\n"
    assert judged(program, **row).outcome == "accepted"
    assert judged(f"if __name__ == '__main__':\n    {program}".replace("\np", "\n    p"), **row).outcome == "accepted"
    assert judged("print(3)", **row).passed == 1
    assert judged("print(3, end='')\nimport os; os._exit(1)", **row).first_failure.outcome == "runtime_error"
    assert judged("print(3", **row).outcome == "compile_error"
    assert judged("print('3\\n7')", **row).passed == 0
    assert judged("print('x' * 2_000_000)", **row).first_failure.outcome == "output"
    assert judged("print(2.9999999999)", inputs=["1 2"], outputs=["3"], compare="float").outcome == "accepted"


@pytest.mark.slow
def test_a_test_that_ends_the_solution_does_not_end_the_others(judged: Callable[..., CodeResult]) -> None:
    program = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    if x == 2:\n        while True: pass\n    return x"
    result = judged(program, tests=[f"assert f({n}) == {n}" for n in (0, 1, 2, 3)], seconds=0.5)
    assert ends(result) == ["accepted", "runtime_error", "time", "accepted"]


@pytest.mark.slow
def test_a_solution_that_never_gets_anywhere_is_given_up(judged: Callable[..., CodeResult]) -> None:
    result = judged("def f(x):\n    while True: pass", tests=[f"assert f({n}) == {n}" for n in range(50)], seconds=0.2)
    assert {test.outcome for test in result.tests} <= {"time_cpu", "time_wall"}
    assert len(result.tests) == 50


BURN = """
import signal, time
def f(x):
    ends = time.process_time() + x
    while time.process_time() < ends:
        pass
    return x
"""


def ends(result: CodeResult) -> list[str]:
    """How the tests ended; on a busy machine the clock may be first to end what the processor time would."""
    return [test.outcome.removesuffix("_cpu").removesuffix("_wall") for test in result.tests]


@pytest.mark.slow
def test_the_processor_time_is_that_of_one_test_and_all_its_calls(judged: Callable[..., CodeResult]) -> None:
    tests = ["assert f(0.2) == 0.2", "assert f(0.2) == 0.2", "assert f(0.2) == 0.2 and f(0.21) == 0.21"]
    result = judged(BURN, tests=[*tests, "assert f(0.0) == 0"], seconds=0.3)
    assert ends(result) == ["accepted", "accepted", "time", "accepted"]


@pytest.mark.slow
def test_a_program_that_turns_its_timer_off_gets_no_more_processor_time(judged: Callable[..., CodeResult]) -> None:
    program = BURN.replace("    ends", "    signal.setitimer(signal.ITIMER_PROF, 0)\n    ends")
    result = judged(program, tests=["assert f(0.0) == 0", "assert f(0.7) == 0.7"], seconds=0.4)
    assert ends(result) == ["accepted", "time"]
    result = judged(f"{program}print(f(float(input())))", inputs=["0.0", "0.7"], outputs=["0.0", "0.7"], seconds=0.4)
    assert ends(result) == ["accepted", "time"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("def f(x) return x", "compile_error"),
        ("", "compile_error"),
        ("import nowhere", "runtime_error"),
        ("def f(x):\n    return 1 / 0", "runtime_error"),
        ("def f(x):\n    import time\n    time.sleep(60)", "time_wall"),
        ("def f(x):\n    return ' ' * 10**10", "memory"),
        ("def f(x):\n    import ctypes\n    ctypes.string_at(0)", "signalled"),
        ("x = [0] * 10**9", "memory"),
        ("def f(x):\n    return 2", "wrong_answer"),
    ],
)
def test_the_outcome_says_what_went_wrong(program: str, outcome: str, judged: Callable[..., CodeResult]) -> None:
    result = judged(program, tests=["assert f(1) == 1"], seconds=0.5)
    assert result.outcome in (outcome, "runtime_error" if outcome == "memory" else outcome), result.line()


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        (["assert f(1) =="], "the tests are no Python: invalid syntax in line 1: assert f"),
        (["x = 1"], "assert nothing"),
        (["f(1)"], "assert nothing"),
        (["import numpy_that_is_not_here\nassert f(1) == 1"], "lacks"),
    ],
)
def test_tests_that_cannot_be_judged_decide_nothing(
    tests: list[str], fault: str, judged: Callable[..., CodeResult]
) -> None:
    with pytest.raises(UnusableTests, match=fault):
        judged("class F: pass\ndef f(x):\n    return '1'", tests=tests)


class Broken:
    """A sandbox that is out of order."""

    def __init__(self, outcome: JobOutcome) -> None:
        self.outcome = outcome

    def capabilities(self) -> dict[str, bool]:
        return {}

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        return [JobResult(self.outcome, reason="no room", peer=JobResult("exited")) for _ in jobs]


@pytest.mark.parametrize("outcome", ["sandbox_error", "unavailable", "overloaded"])
@pytest.mark.parametrize("row", [{"tests": ["assert f(1) == 1"]}, {"inputs": ["1"], "outputs": ["1"]}])
def test_trouble_of_the_sandbox_is_no_result(
    outcome: JobOutcome, row: dict[str, Any], judged: Callable[..., CodeResult]
) -> None:
    with pytest.raises(TransientError, match="no room"):
        judged("def f(x): return x", pool=Broken(outcome), **row)
