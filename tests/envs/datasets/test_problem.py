"""Rows become problems: gold numbers, worked texts, and errors that name the place."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from grpo.envs.datasets.problem import bare_number, read_problem
from grpo.plugins.errors import DatasetError

WORKED = "There are 3*4=<<3*4=12>>12 eggs.\nHalf is 12/2=<<12/2=6>>6.\n#### 6"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72", "72"),
        (" 72\n", "72"),
        ("-72", "-72"),
        ("\N{MINUS SIGN}72", "-72"),
        ("+72", "72"),
        ("1,080", "1080"),
        ("109,200,000", "109200000"),
        ("$1,080.50", "1080.50"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("€ 5", "5"),
        ("72.", "72"),
        (".5", ".5"),
        ("12%", "12%"),
        ("3/4", "3/4"),
        ("-3/4", "-3/4"),
        ("1 1/2", "1 1/2"),
        ("5 %", "5%"),
        ("1e5", "1e5"),
        ("1.5E-3", "1.5E-3"),
    ],
)
def test_a_gold_number_loses_its_ornaments(text: str, number: str) -> None:
    assert bare_number(text) == number
    assert bare_number(number) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "seventy",
        "72 apples",
        "1,08",
        "1,0800",
        "1 080",
        "--5",
        "3/0",
        "1/2/3",
        "$",
        "%",
        "nan",
        "inf",
        "٧٢",
        ".",
    ],
)
def test_what_is_not_one_number_has_no_bare_form(text: str) -> None:
    assert bare_number(text) is None


def test_a_worked_answer_gives_gold_solution_and_clean_reasoning() -> None:
    problem = read_problem({"question": "How many?", "answer": WORKED, "source": "farm"}, "here")
    assert problem.row() == {"source": "farm", "question": "How many?", "answer": "6", "solution": WORKED}
    assert problem.reasoning == "There are 3*4=12 eggs.\nHalf is 12/2=6."


def test_reading_a_read_row_again_changes_nothing() -> None:
    for row in (
        {"question": "q", "answer": WORKED},
        {"question": "q", "answer": 5},
        {"question": "q", "answer": "1,000"},
    ):
        once = read_problem(row, "here")
        assert read_problem(once.row(), "here") == once


def test_a_bare_answer_takes_its_working_from_the_solution_column() -> None:
    solution = "#### First step\nHalve 12.\n#### Second step\nThat is 6."
    problem = read_problem({"question": "q", "answer": "6", "solution": solution}, "here")
    assert (problem.answer, problem.reasoning) == ("6", solution)


def test_a_bare_answer_without_working_has_no_reasoning() -> None:
    assert read_problem({"question": "q", "answer": "#### 6"}, "here").reasoning == ""
    assert read_problem({"question": "q", "answer": "6"}, "here").reasoning == ""


@pytest.mark.parametrize(
    ("value", "number"),
    [(72, "72"), (-3, "-3"), (72.0, "72"), (0.5, "0.5"), (1e21, "1" + "0" * 21), (Decimal("7.50"), "7.5")],
)
def test_numbers_are_taken_as_answers(value: Any, number: str) -> None:
    assert read_problem({"question": "q", "answer": value}, "here").answer == number


def test_columns_may_have_other_names() -> None:
    problem = read_problem({"problem": "q", "final": "5", "answer": "x"}, "here", question="problem", answer="final")
    assert problem.row() == {"problem": "q", "final": "5", "question": "q", "answer": "5", "solution": "5"}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (["q", "5"], "found a list"),
        (None, "found null"),
        (5, "found a number"),
        ({"question": "q"}, "no column 'answer' (the row has: question)"),
        ({}, "no column 'question' (the row has: none)"),
        ({"question": 3, "answer": "5"}, "'question' must be text, found a number"),
        ({"question": "  \n", "answer": "5"}, "'question' is empty"),
        ({"question": "q", "answer": None}, "'answer' must be text or a number, found null"),
        ({"question": "q", "answer": True}, "'answer' must be text or a number, found true or false"),
        ({"question": "q", "answer": ["5"]}, "'answer' must be text or a number, found a list"),
        ({"question": "q", "answer": float("nan")}, "'NaN' in the column 'answer' is not a number"),
        ({"question": "q", "answer": "work\n#### five"}, "'five' in the column 'answer' is not a number"),
        ({"question": "q", "answer": ""}, "'' in the column 'answer' is not a number"),
        ({"question": "q\ud800", "answer": "5"}, "'question' has a lone surrogate at character 2"),
    ],
)
def test_an_unusable_row_is_an_error_that_names_its_place(row: object, fault: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read_problem(row, "rows.jsonl, line 3")
    assert str(caught.value).startswith("rows.jsonl, line 3: ")
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_gsm8k_row_has_a_bare_gold_number_and_clean_reasoning(shared_data: Path) -> None:
    golds: list[tuple[str, str]] = []
    for split in ("train", "test"):
        with (shared_data / "gsm8k" / f"{split}.jsonl").open(encoding="utf-8", newline="\n") as file:
            for line in file:
                row = json.loads(line)
                problem = read_problem(row, split)
                assert problem.solution == row["answer"]
                assert problem.reasoning
                assert not any(mark in problem.reasoning for mark in ("<<", ">>", "####"))
                golds.append((row["answer"].split("####")[1].strip(), problem.answer))
    assert len(golds) == 8792
    assert all(int(published.replace(",", "")) == int(ours) for published, ours in golds)
    assert sum("," in published for published, _ in golds) == 93
