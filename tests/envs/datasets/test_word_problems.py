"""The word problems: their arithmetic is right, their schema is GSM8K's, and a seed fixes them."""

from __future__ import annotations

import hashlib
import json
import random
import re
from itertools import pairwise

import pytest

from grpo.envs.datasets.word_problems import LEVELS, generate
from grpo.plugins.errors import UsageError

ANNOTATION = re.compile(r"(\d+)([-+*/])(\d+)=\$?<<(\d+)([-+*/])(\d+)=(\d+)>>(\d+)")
COMPUTE = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


@pytest.mark.parametrize("level", LEVELS)
def test_every_annotation_evaluates_to_its_result_and_the_last_is_the_answer(level: str) -> None:
    for row in generate(400, seed=1, level=level):
        *lines, final = row["answer"].split("\n")
        results = []
        for line in lines:
            found = ANNOTATION.findall(line)
            assert len(found) == 1, line
            shown, annotated, result, repeated = found[0][:3], found[0][3:6], found[0][6], found[0][7]
            assert shown == annotated
            assert repeated == result
            assert COMPUTE[annotated[1]](int(annotated[0]), int(annotated[2])) == int(result)
            results.append(int(result))
        assert final == f"#### {results[-1]}"


@pytest.mark.parametrize("level", LEVELS)
def test_each_step_goes_on_from_the_one_before(level: str) -> None:
    for row in generate(200, seed=2, level=level):
        steps = ANNOTATION.findall(row["answer"])
        for before, after in pairwise(steps):
            assert before[6] == after[3]


def test_the_numbers_of_the_working_are_given_in_the_question_or_computed() -> None:
    for row in generate(300, seed=3, level="hard"):
        known = set(re.findall(r"\d+", row["question"]))
        for left, _, right, _, _, _, result, _ in ANNOTATION.findall(row["answer"]):
            assert {left, right} <= known, row
            known.add(result)


@pytest.mark.parametrize(("level", "steps"), [("easy", {1}), ("medium", {2}), ("mixed", {1, 2, 3}), ("hard", {3})])
def test_a_level_fixes_the_number_of_steps(level: str, steps: set[int]) -> None:
    assert {row["answer"].count("<<") for row in generate(200, seed=4, level=level)} == steps


def test_numbers_are_small_and_at_least_two() -> None:
    numbers = [int(n) for row in generate(500, seed=5) for n in re.findall(r"\d+", row["question"] + row["answer"])]
    assert min(numbers) == 2
    assert max(numbers) <= 50


def test_a_longer_list_begins_with_the_shorter_one_and_other_seeds_differ() -> None:
    rows = generate(50, seed=6)
    assert generate(80, seed=6)[:50] == rows
    assert generate(50, seed=7) != rows
    assert generate(0, seed=6) == []


def test_the_rows_of_a_seed_never_change_and_the_global_generator_is_left_alone() -> None:
    random.seed(0)
    state = random.getstate()
    text = json.dumps([generate(100, seed=8, level=level) for level in LEVELS], sort_keys=True)
    assert random.getstate() == state
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ac026f9cb293459a"


def test_problems_are_varied() -> None:
    rows = generate(1000, seed=9)
    assert len({row["question"] for row in rows}) >= 990
    shapes = {re.sub(r"\d+|[A-Z][a-z]+", "_", row["question"]) for row in rows}
    assert len(shapes) >= 700
    answers = [row["answer"].split("#### ")[1] for row in rows]
    assert max(answers.count(answer) for answer in set(answers)) <= 80
    used = "".join(row["answer"] for row in rows)
    assert all(used.count(op) >= 100 for op in "+-*/")


def test_text_has_no_unfilled_or_doubled_parts() -> None:
    for row in generate(1000, seed=10):
        assert not re.search(r"[{}]|  |\$\$", row["question"] + row["answer"])
        assert row["question"].endswith("?")
        assert row["question"].count("?") == 1


def test_an_unknown_level_and_a_negative_count_are_usage_errors() -> None:
    with pytest.raises(UsageError, match=r"no level 'medum'\. Did you mean 'medium'"):
        generate(1, seed=0, level="medum")
    with pytest.raises(UsageError, match="cannot make -1"):
        generate(-1, seed=0)
