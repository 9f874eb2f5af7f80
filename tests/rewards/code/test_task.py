"""What the columns of a row ask for, and which names of the tests the solution must define."""

import json
from typing import Any

import pytest

from grpo.plugins.errors import DatasetError
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.task import Columns, task_of
from grpo.rewards.code.tests_plan import leading_name, plan_tests


def names(*tests: str, **given: Any) -> tuple[str, ...]:
    return plan_tests(tests, **given).names


def test_the_solution_must_define_what_the_tests_use_and_nothing_else_defines() -> None:
    assert names("assert f(1) == 2") == ("f",)
    assert names("import math\nassert f(math.pi) == g(1)") == ("f", "g")
    assert names("assert len(f(1)) == 2 and isinstance(f(2), str)") == ("f",)
    assert names("def helper(x):\n    return f(x)\nassert helper(1)") == ("f",)
    assert names("assert f(sys.getsizeof(1)) == math.inf") == ("f",)
    assert names("from solution import f as g, h\nassert g(1) == h(1)") == ("f", "h")
    assert names("import solution\nassert solution.f(1) == 1") == ("f",)
    assert names("assert sum(1, 2) == 3") == ("sum",)
    assert names("assert [x for x in f(1)] == [y for y in range(2)]") == ("f",)
    assert names("def check(candidate):\n    assert candidate(1) == 1", entry_point="f") == ("f",)
    assert names("def check(c):\n    assert c(1)\ncheck(Solution().run)") == ("run",)
    assert names("assert heapq(1) == 2") == ("heapq",)


def test_what_the_prompt_defines_need_not_be_defined() -> None:
    prompt = "import math\ndef helper(x):\n    return x\n\ndef f(x):\n    '''Doc.'''\n"
    plan = plan_tests(("def check(c):\n    assert helper(c(1)) == math.pi",), prompt=prompt, entry_point="f")
    assert plan.names == ("f",)
    assert "def helper" in plan.setup
    assert "def f" not in plan.setup


@pytest.mark.parametrize(
    ("source", "units"),
    [
        ("assert f(1)\nassert f(2)", 2),
        ("x = f(1)\nassert x\ny = f(2)\nassert y\nf(3)", 2),
        ("for x in (1, 2):\n    assert f(x)", 1),
        ("def test_a():\n    assert f(1)\n    assert f(2)\ndef test_b():\n    assert f(3)", 2),
        ("class TestF:\n    def test_a(self):\n        assert f(1)\n    def helper(self):\n        pass", 1),
        ("def check(c):\n    assert c(1)\n    assert c(2)\ncheck(f)", 2),
        ("def same(a, b):\n    assert a == b\nsame(f(1), 1)\nsame(f(2), 2)", 2),
        ("assert True\nassert f(1)", 1),
        ("try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", 1),
    ],
)
def test_what_can_fail_on_its_own_is_a_test(source: str, units: int) -> None:
    assert plan_tests((source,)).units == units


def test_in_a_list_each_text_is_a_test() -> None:
    assert plan_tests(("assert f(1)\nassert f(2)", "x = f(3)\nassert x")).units == 2


@pytest.mark.parametrize(
    "tests",
    [
        "",
        "x = 1",
        "assert (",
        "assert f(1" + "(" * 5000,
        "assert f('\x00')",
    ],
)
def test_tests_that_cannot_be_used_are_refused(tests: str) -> None:
    with pytest.raises(UnusableTests):
        plan_tests((tests,))


@pytest.mark.parametrize(
    ("text", "name"), [("", ""), ("f", "f"), ("Solution().run", "Solution"), ("A.run", "A"), (" f ", "f")]
)
def test_an_entry_point_begins_with_a_global(text: str, name: str) -> None:
    assert leading_name(text) == name


@pytest.mark.parametrize("text", ["f(1)", "f; import os", "a.b.c", "1", "f g"])
def test_anything_else_is_no_entry_point(text: str) -> None:
    with pytest.raises(UnusableTests):
        leading_name(text)


ASSERTS = ("assert f(1) == 2", "assert f(2) == 4")
PAIRS = [{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "6\n"}]


@pytest.mark.parametrize(
    "row",
    [
        {"tests": list(ASSERTS)},
        {"test_list": list(ASSERTS)},
        {"tests": {"type": "assert", "asserts": list(ASSERTS)}},
        {"tests": json.dumps(ASSERTS)},
        {"tests": json.dumps({"asserts": ASSERTS})},
        {"tests": [{"assert_case": text} for text in ASSERTS]},
    ],
)
def test_assertions_in_every_form_are_the_same_task(row: dict[str, Any]) -> None:
    assert task_of(Columns(**row)).sources == ASSERTS


@pytest.mark.parametrize(
    "row",
    [
        {"inputs": ["1\n", "3\n"], "outputs": ["2\n", "6\n"]},
        {"tests": {"inputs": ["1\n", "3\n"], "outputs": ["2\n", "6\n"]}},
        {"tests": {"fn_name": None, "inputs": ["1\n", "3\n"], "outputs": ["2\n", "6\n"]}},
        {"tests": json.dumps({"inputs": ["1\n", "3\n"], "outputs": ["2\n", "6\n"]})},
        {"tests": PAIRS},
        {"tests": json.dumps(PAIRS)},
        {"tests": {"test_cases": PAIRS}},
        {"inputs": json.dumps(["1\n", "3\n"]), "outputs": json.dumps(["2\n", "6\n"])},
    ],
)
def test_inputs_and_outputs_in_every_form_are_the_same_task(row: dict[str, Any]) -> None:
    task = task_of(Columns(**row))
    assert (task.inputs, task.outputs) == ((b"1\n", b"3\n"), (b"2\n", b"6\n"))


def test_source_that_is_no_json_is_source() -> None:
    assert task_of(Columns(tests="[f(1) for _ in ()]\nassert f(1)")).sources == ("[f(1) for _ in ()]\nassert f(1)",)


def test_mbpp_rows_run_their_setup_first_and_human_eval_rows_call_check() -> None:
    task = task_of(Columns(test_list=["assert f(r)"], test_setup_code="r = 1\r\n", test_imports=["import math"]))
    assert task.plan().source.startswith("import math\nr = 1\n")
    task = task_of(Columns(test="def check(c):\n    assert c(1)", entry_point="f", prompt="def f(x):\n"))
    assert task.plan().source.endswith("check(f)")
    assert task.program("    return x\n") == "def f(x):\n    return x\n"
    assert task.program("```python\ndef f(x):\n    return 1\n```") == "def f(x):\n    return 1\n"


def test_a_prompt_in_prose_is_no_code() -> None:
    assert task_of(Columns(tests=["assert f(1)"], entry_point="f", prompt="Write f.")).prompt == ""
    assert task_of(Columns(tests=["assert f(1)"], prompt=[{"role": "user", "content": "def f(x):"}])).prompt == ""


@pytest.mark.parametrize(
    "row",
    [
        {"tests": 5},
        {"tests": [5]},
        {"tests": {"unknown": 1}},
        {"tests": [{"input": "1"}]},
        {"inputs": ["1"], "outputs": ["1", "2"]},
        {"inputs": [], "outputs": []},
        {"inputs": ["1"], "outputs": ["1"], "fn_name": 5},
        {"inputs": ["1"], "outputs": ["1"], "fn_name": "import os"},
        {"test_list": ["assert f(1)", None]},
        {"tests": ["assert f(1)"], "test_setup_code": 1},
    ],
)
def test_tests_of_no_known_form_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(UnusableTests):
        task_of(Columns(**row)).plan()


@pytest.mark.parametrize("row", [{}, {"tests": []}, {"tests": ""}, {"inputs": ["1"]}, {"entry_point": "f"}])
def test_a_row_without_tests_is_a_fault_of_the_data_set_and_no_score(row: dict[str, Any]) -> None:
    with pytest.raises(DatasetError, match="the row has no tests"):
        task_of(Columns(**row))
