"""Tests that accept a program which solves nothing are weak: the reward leaves their task out, validation lists it."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo import Completion, Host, Scorer, validate
from grpo.envs.code.exercises import all_exercises
from grpo.envs.code.spec import PROBLEMS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandbox_pools")]

WEAK: dict[str, dict[str, Any]] = {
    "returns True": {"tests": ["assert f(1) is True", "assert f(2)"], "entry_point": "f"},
    "returns its first argument": {"tests": ["assert f([3]) == [3]", "assert f(5) == 5"]},
    "raises ValueError": {"tests": "import pytest\ndef test_f():\n    with pytest.raises(ValueError):\n        f(1)\n"},
    "returns None": {"tests": "def test_stack():\n    stack = Stack()\n    assert stack.push(1) is None\n"},
    "keeps what it is given and returns its number": {
        "tests": "def test_f():\n    for n in (5, 300):\n        assert f(n) < n\n        assert g(f(n)) == n\n"
    },
    "keeps what it is given and returns a name for it": {
        "tests": "def test_f():\n    text = 'ab' * 40\n    assert len(f(text)) < 80\n    assert g(f(text)) == text\n"
    },
    "prints its input": {"inputs": ["a\n"], "outputs": ["a"]},
    "prints YES": {"inputs": ["1", "2"], "outputs": ["YES", "YES"]},
}
STRONG: list[dict[str, Any]] = [
    {"tests": ["assert f(2) == 4", "assert f(0) == 0"], "entry_point": "f"},
    {"inputs": ["ab", "c d"], "outputs": ["ba", "d c"]},
    {"tests": "def test_f():\n    stack = Stack([2, 3])\n    assert stack.pop() == 3\n    assert stack.pop() == 2\n"},
]
RIGHT = "```python\ndef f(x):\n    return True\n```"


def scored(rows: list[dict[str, Any]], spec: str) -> list[tuple[float | None, str | None]]:
    with Scorer([Host.discover().reward(spec)]) as scorer:
        outcomes = scorer.score([Completion(RIGHT, row=row) for row in rows])["code"]
    assert all(outcome.kind != "failure" for outcome in outcomes), outcomes
    return [(outcome.score, outcome.reason) for outcome in outcomes]


def test_the_reward_abstains_on_a_weak_task_and_says_why() -> None:
    outcomes = scored([*WEAK.values(), *STRONG], "code")
    for what, (score, reason) in zip(WEAK, outcomes, strict=False):
        assert score is None
        assert reason is not None
        assert what in reason
    assert outcomes[len(WEAK) :] == [(0.0, None)] * len(STRONG)


def test_a_user_may_keep_weak_tasks() -> None:
    assert scored([WEAK["returns True"]], "code:weak=keep") == [(1.0, None)]


def test_no_embedded_task_is_weak() -> None:
    rows: list[dict[str, Any]] = [*map(json.loads, PROBLEMS.read_text().splitlines()), *all_exercises(0)[:12]]
    assert [reason for _, reason in scored(rows, "code") if reason] == []


def test_validation_lists_weak_rows_with_the_cheats_that_they_accept(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(
        '{"question": "Above 0", "code": "def f(x):\\n    return x > 0", "test_list": ["assert f(1)", "assert f(2)"]}\n'
        '{"question": "Double.", "code": "def g(x):\\n    return 2 * x", "test_list": ["assert g(2) == 4"]}\n',
        encoding="utf-8",
    )
    report = validate(f"code:dataset={file}", split="train")
    assert report.ok
    [row] = report.weak
    assert row.index == 0
    assert "returns True" in row.cheats
    assert "which pay for what solves nothing: 1" in str(report)
