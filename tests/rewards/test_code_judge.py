"""What the judge accepts, rejects and cannot decide, in the real sandbox."""

import asyncio
import json

import pytest

from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import JobResult
from grpo.plugins.sandbox_pools import close_pools, pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.spec import passing
from grpo.rewards.code.task import Columns, task_of

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


@pytest.fixture(scope="module", autouse=True)
def _pools():
    yield
    close_pools()


def judged(program, *, pool=None, seconds=2.0, stop=False, integrity="split", compare="trimmed", **row):
    task = task_of(Columns(**row))
    allowance = Allowance(seconds=seconds, stop=stop)
    options = {"allowance": allowance, "integrity": integrity, "comparison": compare}
    return asyncio.run(judge(pool or pool_of(), program, task, **options))[1]


def passes(program, *tests, **row):
    result = judged(program, tests=list(tests), **row)
    assert result.outcome == "accepted", result.line()


def fails(program, *tests, **row):
    result = judged(program, tests=list(tests), **row)
    assert result.passed < result.count
    return result


def test_every_assertion_is_a_test_of_its_own():
    result = judged(DOUBLE, tests=["assert double(1) == 2", "assert double(1) == 3", "assert double(3) == 6"])
    assert (result.outcome, result.passed, result.count, result.fraction) == ("partial", 2, 3, pytest.approx(2 / 3))
    assert result.line().startswith("partial: 2 of 3 tests passed; test 2 wrong_answer: AssertionError")
    source = (
        "import math\n\nvalue = double(2)\nassert value == 4\nassert math.sqrt(double(8)) == 4\nassert double(1) == 3\n"
    )
    assert judged(DOUBLE, tests=source).passed == 2


def test_nothing_runs_after_the_first_failure_when_that_is_asked_for():
    result = judged(DOUBLE, tests=["assert double(1) == 3", "assert double(1) == 2"], stop=True)
    assert (result.passed, result.count, len(result.tests)) == (0, 2, 1)


def test_assertions_of_a_check_function_count_one_by_one():
    check = (
        "def check(candidate):\n    assert candidate(1) == 2\n    for n in (2, 3):\n        assert candidate(n) == n\n"
    )
    result = judged(DOUBLE, test=check + "    assert True\n", entry_point="double")
    assert (result.passed, result.count) == (1, 2)


def test_a_test_function_may_call_a_check_that_counts_by_itself():
    tests = "def check(f):\n    assert f(1) == 2\ndef test_all():\n    check(double)\n    assert double(2) == 4\n"
    tests += "check(double)\n"
    result = judged(DOUBLE, tests=tests)
    assert (result.outcome, result.count) == ("accepted", 2), result.line()


def test_test_functions_fixtures_and_parameters_as_pytest_has_them():
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


def test_test_cases_of_unittest():
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


def test_arguments_that_the_solution_changes_are_changed_for_the_tests():
    program = "def order(items, seen):\n    items.sort()\n    seen['n'] = [len(items)]"
    passes(program, "a, s = [3, 2], {}\norder(a, s)\nassert (a, s) == ([2, 3], {'n': [2]})")
    passes(program, "a, b = [1], [2]\nc = [b, a]\norder(c, {})\nassert c == [a, b] and c[0] is a")
    passes(
        "def mark(rows):\n    rows[1].append(5)", "a = [[1], [2]]\nb = a[1]\nmark(a)\nassert b == [2, 5] and a[1] is b"
    )


def test_a_change_of_an_argument_does_not_decide_the_assertion_that_it_happens_in():
    program = "def order(items):\n    items.clear()\n    return items"
    fails(program, "items = [3, 1, 2]\nassert order(items) == sorted(items)")
    fails(
        program,
        (
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
            "        a = [2, 1]\n        self.assertEqual(order(a), sorted(a))"
        ),
    )


def test_functions_and_iterators_of_the_tests_reach_the_solution():
    program = "def apply(f, items):\n    return [f(item) for item in items]"
    passes(
        program, "assert apply(lambda x: x + 1, iter([1, 2])) == [2, 3]", "assert apply(str, (n for n in [1])) == ['1']"
    )


def test_a_callback_may_call_the_solution_again():
    passes(
        "def walk(f, n):\n    return f(n) if n else 0", "assert walk(lambda n: 1 + walk(lambda m: m, n - 1), 3) == 3"
    )


def test_generators_and_endless_iterators_are_read_on_demand():
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


def test_classes_of_the_solution_are_used_through_handles():
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


def test_an_operator_with_plain_data_is_not_the_solutions_to_answer():
    liar = STACK.replace("return Stack(self.items * count)", "return 4")
    fails(liar, "assert Stack([1]) * 2 == 4", "assert len(Stack([2])) == 1")


def test_what_a_method_returns_is_judged_as_what_a_function_returns():
    yes = "class Yes:\n    __contains__ = __eq__ = lambda self, other: True\n    startswith = __contains__\n"
    program = yes + "class Solution:\n    def run(self, x):\n        return Yes()"
    meta = "class Meta(type):\n    __contains__ = lambda self, other: True\n    startswith = lambda self, other: True\n"
    itself = meta + "class Solution(metaclass=Meta):\n    def run(self, x):\n        return Solution"
    own = "class Solution:\n    __contains__ = startswith = lambda self, other: True\n    def run(self, x): return self"
    for cheat in (program, itself, own):
        result = judged(cheat, tests=["assert 4 in Solution().run(1)", "assert Solution().run(1).startswith('a')"])
        assert result.passed == 0, result.line()


def test_setup_code_runs_after_the_solution():
    program = (
        "class Node:\n    def __init__(self, v):\n        self.v, self.left = v, None\n"
        "def depth(n):\n    return 0 if n is None else 1 + depth(n.left)"
    )
    passes(program, "assert depth(root) == 2", test_setup_code="root = Node(1)\nroot.left = Node(2)")


def test_what_the_prompt_defines_is_the_tests_own():
    prompt = (
        "import math\n\ndef norm(v):\n    return math.sqrt(sum(x * x for x in v))\n\n"
        "def unit(v):\n    '''A vector of length 1.'''\n"
    )
    check = "def check(candidate):\n    assert abs(norm(candidate([3, 4])) - 1) < 1e-9\n"
    row = {"test": check, "entry_point": "unit", "prompt": prompt}
    assert judged("    return [x / norm(v) for x in v]\n", **row).outcome == "accepted"
    assert judged("```python\ndef unit(v):\n    return [x / norm(v) for x in v]\n```", **row).outcome == "accepted"
    assert judged("def norm(v):\n    return 1\n\ndef unit(v):\n    return v\n", **row).passed == 0


def test_classes_that_the_prompt_defines_cross_by_value():
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
    assert judged("def grow(n):\n    n.total = lambda: 5\n    n.v += 2\n    return n", **row).passed == 0


@pytest.mark.parametrize("base", ["Enum", "IntEnum", "str, Enum", "Flag"])
def test_members_of_an_enumeration_of_the_prompt_cross_by_name(base):
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
def test_data_classes_of_the_prompt_cross_by_value(form):
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


def test_what_a_class_of_the_prompt_computes_is_computed_by_the_tests():
    prompt = (
        "from functools import cached_property\nclass Box:\n    def __init__(self, sides):\n"
        "        self.sides = sides\n    @cached_property\n    def volume(self):\n"
        "        return self.sides[0] * self.sides[1]\ndef box(a, b):\n    '''A box.'''\n"
    )
    tests = ["assert box(2, 3).volume == 6", "assert box(4, 5).sides == [4, 5]"]
    honest = "def box(a, b):\n    made = Box([a, b])\n    assert made.volume >= 0\n    return made"
    lying = "def box(a, b):\n    made = Box([0, 0])\n    vars(made)['volume'] = 6\n    return made"
    row = {"prompt": prompt, "entry_point": "box"}
    passes(honest, *tests, **row)
    assert fails(lying, *tests, **row).passed == 0


def test_a_structure_of_the_solution_that_cannot_go_back_is_its_own_fault():
    prompt = (
        "class Node:\n    def __init__(self, next=None):\n        self.next = next\ndef chain(n):\n    '''A chain.'''\n"
    )
    tests = ["assert chain(chain(3)) is None"]
    deep = "import sys\nsys.setrecursionlimit(10**5)\ndef chain(n):\n    made = None\n"
    for depth in (150, 200, 220, 240, 300):
        program = f"{deep}    for _ in range({depth}): made = Node(made)\n    return made"
        fails(program, *tests, prompt=prompt, entry_point="chain")


def test_an_infinite_result_is_only_itself():
    row = {"inputs": [[1]], "outputs": [float("inf")], "fn_name": "f", "compare": "float"}
    assert asyncio.run(passing("def f(x): return float('inf')", **row)) == 1.0
    assert asyncio.run(passing("def f(x): return 5.0", **row)) == 0.0
    approximate = ["import pytest\ndef test_f():\n    assert f(1) == pytest.approx(float('inf'))"]
    passes("def f(x): return float('inf')", *approximate)
    fails("def f(x): return 5.0", *approximate)


def test_names_are_compared_as_python_reads_them():
    sign, letter = "\u00b5", "\u03bc"  # the micro sign and the Greek letter, which are one name
    passes(f"def {letter}(x): return x", f"assert {sign}(1) == 1", entry_point=sign)
    two = f"```python\ndef {sign}(x): return x\n```\n```python\nprint('a word more')\n```"
    passes(two, f"assert {letter}(1) == 1", entry_point=letter)


def test_names_that_contest_sites_import_need_no_import():
    passes(
        "def pairs(items: List[int]) -> Dict[int, int]:\n    return dict(Counter(items))",
        "assert pairs([1, 1]) == {1: 2}",
    )


@pytest.mark.parametrize("integrity", ["split", "shared"])
def test_a_function_that_the_library_has_too_must_still_be_written(integrity):
    tests = ["assert gcd(4, 6) == 2", "assert factorial(3) == 6"]
    assert judged("pass", tests=tests, integrity=integrity).passed == 0
    right = "from math import factorial\ndef gcd(a, b):\n    return gcd(b, a % b) if b else a"
    assert judged(right, tests=tests, integrity=integrity).passed == 2


def test_functions_named_like_built_ins_can_be_asked_for():
    passes("def sum(a, b):\n    return a - b", "assert sum(3, 1) == 2", "assert sum(5, 5) == 0")


def test_calls_with_expected_results():
    row = {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, [7]]}
    assert judged("class Solution:\n    def add(self, a, b):\n        return a + b", **row).outcome == "accepted"
    lines = {"fn_name": "pair", "inputs": ["1\n[2]"], "outputs": ["[1, [2]]"]}
    assert judged("def pair(a, b):\n    return (a, b)", **lines).outcome == "accepted"
    assert judged("def pair(a, b):\n    return (a,)", **lines).outcome == "wrong_answer"
    wrapped = json.dumps({"fn_name": "add", "inputs": [[1, 1]], "outputs": [3]})
    assert judged("def add(a, b):\n    return a + b", tests=wrapped).passed == 0


def test_programs_that_print():
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


def test_a_test_that_ends_the_solution_does_not_end_the_others():
    program = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    if x == 2:\n        while True: pass\n    return x"
    result = judged(program, tests=[f"assert f({n}) == {n}" for n in (0, 1, 2, 3)], seconds=0.5)
    assert ends(result) == ["accepted", "runtime_error", "time", "accepted"]


def test_a_solution_that_never_gets_anywhere_is_given_up():
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


def ends(result):
    """How the tests ended; on a busy machine the clock may be first to end what the processor time would."""
    return [test.outcome.removesuffix("_cpu").removesuffix("_wall") for test in result.tests]


@pytest.mark.parametrize("integrity", ["split", "shared"])
def test_the_processor_time_is_that_of_one_test_and_all_its_calls(integrity):
    tests = ["assert f(0.2) == 0.2", "assert f(0.2) == 0.2", "assert f(0.2) == 0.2 and f(0.21) == 0.21"]
    result = judged(BURN, tests=[*tests, "assert f(0.0) == 0"], seconds=0.3, integrity=integrity)
    assert ends(result) == ["accepted", "accepted", "time", "accepted"]


def test_a_program_that_turns_its_timer_off_gets_no_more_processor_time():
    program = BURN.replace("    ends", "    signal.setitimer(signal.ITIMER_PROF, 0)\n    ends")
    result = judged(program, tests=["assert f(0.0) == 0", "assert f(0.7) == 0.7"], seconds=0.4)
    assert ends(result) == ["accepted", "time"]
    result = judged(f"{program}print(f(float(input())))", inputs=["0.0", "0.7"], outputs=["0.0", "0.7"], seconds=0.4)
    assert ends(result) == ["accepted", "time"]


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("def f(x) return x", "compile_error"),
        ("", "compile_error"),
        ("import nowhere", "runtime_error"),
        ("def f(x):\n    return 1 / 0", "runtime_error"),
        ("def f(x):\n    import time\n    time.sleep(60)", "time_wall"),
        ("def f(x):\n    return ' ' * 10**10", "runtime_error"),
        ("def f(x):\n    import ctypes\n    ctypes.string_at(0)", "signalled"),
        ("x = [0] * 10**9", "memory"),
        ("def f(x):\n    return 2", "wrong_answer"),
    ],
)
def test_the_outcome_says_what_went_wrong(program, outcome):
    result = judged(program, tests=["assert f(1) == 1"], seconds=0.5)
    assert result.outcome in (outcome, "runtime_error" if outcome == "memory" else outcome), result.line()


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        (["assert f(1) =="], "no Python"),
        (["x = 1"], "assert nothing"),
        (["assert eval(f(1)) == 1"], "eval"),
        (["import pickle\nassert pickle.loads(f(1)) == 1"], "pickle"),
        (["import numpy_that_is_not_here\nassert f(1) == 1"], "lacks"),
        (["def test_files(tmp_path):\n    assert f(tmp_path)"], "tmp_path"),
        (["assert f(open) == 1", "class A: pass\nassert f(A()) == 1"], "A, which does not cross"),
        (["class B(F): pass\nassert B()"], "derive"),
    ],
)
def test_tests_that_cannot_be_judged_decide_nothing(tests, fault):
    with pytest.raises(UnusableTests, match=fault):
        judged("class F: pass\ndef f(x):\n    return '1'", tests=tests)


def test_tests_that_need_the_program_beside_them_run_there_and_say_so():
    tests = ["assert eval(f(1)) == 1", "class B(F):\n    pass\nassert isinstance(B(), F)"]
    result = judged("class F: pass\ndef f(x):\n    return str(x)", tests=tests, integrity="shared")
    assert result.outcome == "accepted"
    assert "integrity shared" in result.line()
    assert (
        judged("def f(x):\n    return 2", tests=["assert f(1) == 1", "assert f(2) == 2"], integrity="shared").passed
        == 1
    )
    assert judged("import os\nos._exit(0)", tests=["assert f(1) == 1"], integrity="shared").passed == 0


class Broken:
    """A sandbox that is out of order."""

    def __init__(self, outcome):
        self.outcome = outcome

    def capabilities(self):
        return {}

    async def run(self, jobs):
        return [JobResult(self.outcome, reason="no room", peer=JobResult("exited")) for _ in jobs]


@pytest.mark.parametrize("outcome", ["sandbox_error", "unavailable", "overloaded"])
@pytest.mark.parametrize("row", [{"tests": ["assert f(1) == 1"]}, {"inputs": ["1"], "outputs": ["1"]}])
def test_trouble_of_the_sandbox_is_no_result(outcome, row):
    with pytest.raises(TransientError, match="no room"):
        judged("def f(x): return x", pool=Broken(outcome), **row)


def test_what_the_solution_prints_is_the_tests_to_see():
    program = "def hello():\n    print('hi ' * 10)\n    return 1"
    passes(
        program,
        (
            "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n"
            "    hello()\nassert out.getvalue() == 'hi ' * 10 + '\\n'"
        ),
    )
    passes("import sys\ndef loud():\n    print('x' * 5_000_000)\n    return 1", "assert loud() == 1")
