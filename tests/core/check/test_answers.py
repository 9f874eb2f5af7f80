"""Where the gold stands in a completion: numbers in any dress, words as whole words, and never a guess."""

from __future__ import annotations

from decimal import Decimal

import pytest

from grpo.core.check.answers import Example, answer_column, find_slot, number_forms


def example(text: str, **row: object) -> Example:
    return Example(text, row)


@pytest.mark.parametrize(
    ("text", "gold", "stated"),
    [
        ("It is 72.", "72", "72"),
        ("72 apples, so 72", "72", "72"),
        ("It is $1,200.", "1200", "$1,200"),
        ("It is 1200", "1,200", "1200"),
        ("-5 degrees", -5, "-5"),
        ("so 0.50", 0.5, "0.50"),
        ("#### 72", "9 * 8 = 72\n#### 72", "72"),
        ("The capital is Paris.", "Paris", "Paris"),
        ("x = a+b", "a+b", "a+b"),
    ],
)
def test_the_gold_is_found_as_it_is_written(text: str, gold: object, stated: str) -> None:
    slot = find_slot(example(text, answer=gold), "answer")
    assert slot is not None
    assert slot.example.text[slot.start : slot.end] == stated
    assert slot.start == text.rindex(stated)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("It is 721.", "72"),
        ("It is 7.2", "72"),
        ("72% of them", "72"),
        ("3/72", "72/3"),
        ("Parisian", "Paris"),
        ("It is True", True),
        ("[1, 2]", [1, 2]),
        ("nothing", ""),
        ("nothing", None),
        ("a" * 300, "a" * 300),
    ],
)
def test_what_is_not_the_gold_is_no_slot(text: str, gold: object) -> None:
    assert find_slot(example(text, answer=gold), "answer") is None


def test_filling_the_slot_changes_the_answer_alone() -> None:
    slot = find_slot(example("72 - 0 = 72!", answer="72", question="?"), "answer")
    assert slot is not None
    assert slot.filled("seventy-two") == example("72 - 0 = seventy-two!", answer="72", question="?")


def test_an_enlarged_slot_has_its_gold_enlarged_too_and_the_working_stays() -> None:
    slot = find_slot(example("so 72", answer="9 * 8\n#### 72"), "answer")
    assert slot is not None
    larger = slot.enlarged()
    assert larger is not None
    assert (larger.example.text, larger.example.row["answer"]) == ("so 1200", "9 * 8\n#### 1200")
    assert find_slot(larger.example, "answer") == larger
    numeric = find_slot(example("so 72", answer=72), "answer")
    assert numeric is not None
    assert numeric.enlarged().example.row == {"answer": 1200}
    words = find_slot(example("Paris", answer="Paris"), "answer")
    assert words is not None
    assert words.enlarged() is None


def test_the_column_is_found_by_its_name_or_because_all_completions_state_its_value() -> None:
    examples = [example("It is 4", answer="4", n=9), example("It is 5", answer="5", n=9)]
    assert answer_column(examples, ["n", "answer"]) == "answer"
    unnamed = [example("It is 4", key="4", n=9), example("It is 5", key="5", n=9)]
    assert answer_column(unnamed, ["n", "key"]) == "key"
    assert answer_column([*unnamed, example("no idea", key="6", n=9)], ["n", "key"]) is None
    assert answer_column([example("What is it? It is 4", question="What is it?")], ["question"]) is None
    assert answer_column([], ["key"]) is None


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        ("1200", {"1,200", "1200.0", "$1200"}),
        ("72", {"72.0", "$72"}),
        ("0.5", {"0.50", "$0.5"}),
        ("-1200", {"-1,200", "-1200.0"}),
        ("1E+3", {"1,000", "1000.0", "$1000"}),
    ],
)
def test_other_ways_to_write_a_number_mean_the_same(value: str, forms: set[str]) -> None:
    assert {form for _, form in number_forms(Decimal(value))} == forms
