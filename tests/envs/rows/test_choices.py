"""Multiple choice: the layouts of the hub, and which choice an answer names."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.envs.rows.choices import Choices, read_choices
from grpo.plugins.errors import DatasetError


def of(given: Any) -> Choices:
    choices = read_choices(given)
    assert choices is not None
    return choices


@pytest.mark.parametrize(
    "given",
    [
        ["one", "two"],
        ["A) one", "B) two"],
        ["(A) one", "(B) two"],
        {"text": ["one", "two"], "label": ["A", "B"]},
        {"A": "one", "B": "two", "C": None},
    ],
)
def test_choices_are_shown_by_letters(given: Any) -> None:
    assert of(given).text == "A. one\nB. two"
    assert of(given).golds("B", "row") == ["B", "two"]


def test_labels_of_the_row_are_kept() -> None:
    assert of({"text": ["one", "two"], "label": ["1", "2"]}).golds("2", "row") == ["2", "two"]


@pytest.mark.parametrize(
    ("given", "answer", "label"),
    [
        (["1", "42", "3"], 1, "B"),
        (["1", "42", "3"], "1", "A"),
        (["1", "42", "3"], "42", "B"),
        (["1", "42", "3"], 42, "B"),
        ([3, 4, 5], 3, "A"),
        (["x", "y", "z"], "2", "C"),
        (["x", "y", "z"], 2.0, "C"),
        (["x", "y", "z"], "(b)", "B"),
        (["x", "y", "z"], " z ", "C"),
    ],
)
def test_an_answer_is_a_letter_a_text_or_a_number_from_zero(given: list[Any], answer: Any, label: str) -> None:
    golds = of(given).golds(answer, "row")
    assert golds is not None
    assert golds[0] == label


def test_a_number_that_no_choice_has_is_refused_and_another_answer_left_alone() -> None:
    with pytest.raises(DatasetError, match=r"row is 3, and the 3 choices are numbered from 0. Write the letter"):
        of(["x", "y", "z"]).golds(3, "row")
    assert of(["x", "y", "z"]).golds("none of these", "row") is None
    assert of(["x", "y", "z"]).golds(True, "row") is None
    assert of("a) 1, b) 2").golds("a", "row") is None


@pytest.mark.parametrize("given", [None, "", [], {}, {"text": []}, {"sentences": [["a"]]}, [["a"]], {"A": ["a"]}])
def test_other_layouts_are_no_choices(given: Any) -> None:
    assert read_choices(given) is None


def test_choices_that_a_prompt_lists_already_are_not_shown_again() -> None:
    assert of(["one", "two"]).shown_in("Which?\n(A) one\n (B)  two")
    assert not of(["3", "4"]).shown_in("What is 3+4?")
    assert of("a) 1, b) 2").shown_in("Which? a) 1, b) 2")
