"""The reward `text_match`, and how words are compared."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from grpo.rewards.text_match import text_match
from grpo.rewards.words import normal, overlap


def test_it_agrees_with_the_recorded_matches(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = [row for row in read_cases("cases/text_match_cases.jsonl") if row["verifier"] != "GSM8KVerifier"]
    assert len(rows) >= 15
    for row in rows:
        measure: Literal["exact", "f1"] = "f1" if row["verifier"] == "F1Verifier" else "exact"
        assert text_match(row["prediction"], row["label"], measure=measure) == pytest.approx(
            row["expected_score"], abs=1e-9
        ), row["id"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The  United-States\n of America!", "united states of america"),
        ("Hello, world!", "hello world"),
        ("O'Hare's", "ohares"),
        ("-3.5", "-3.5"),
        ("3.5.", "3.5"),
        ("1-2", "1 2"),
        ("\uff21\uff22", "ab"),
        ("Par\u200bis", "paris"),
        ("(A)", "a"),
        ("the", ""),
        ("!?", ""),
    ],
)
def test_the_normal_form(text: str, words: str) -> None:
    assert normal(text) == words


def test_overlap_is_the_f1_of_the_words() -> None:
    assert overlap("a b b", "b b c") == pytest.approx(2 * 2 / (2 + 3))
    assert overlap("x", "y") == 0.0
    assert overlap("", "y") == 0.0
    assert overlap("!", "the") == 1.0


def test_a_marked_answer_counts_and_the_reasoning_does_not() -> None:
    assert text_match("<think>London?</think><answer>Paris</answer>", "paris") == 1.0
    assert text_match("<think>Paris</think>London", "paris") == 0.0
    assert text_match("So it is \\boxed{\\text{Paris}}", "paris", measure="f1") > 0.0
    assert text_match("<answer>Paris</answer><answer>London</answer>", "paris") == 0.0
    assert text_match("So it is \\boxed{\\text{Paris}}", "paris") == 1.0
    assert text_match("<answer>B</answer>", "A") == 0.0


def test_golds_without_words_abstain() -> None:
    golds: list[Any] = ["", "!", [], ["", 5], None, 7]
    for gold in golds:
        assert text_match("Paris", gold) is None


def test_listing_everything_is_no_exact_match_and_dilutes_the_f1() -> None:
    every = "Paris, London, Rome and Berlin"
    assert text_match(f"<answer>{every}</answer>", "Paris") == 0.0
    assert text_match(f"<answer>{every}</answer>", "Paris", measure="f1") < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "The answer is Paris.",
        "The answer is: Paris",
        "Final answer: Paris",
        "**Answer:** Paris",
        "**Answer: Paris**",
        "The answer is **Paris**.",
        "### Answer\n\nParis",
        "A: Paris",
        'The answer is "Paris".',
        "The answer is Paris. It is the capital of France.",
        "The answer is Paris, the capital of France.",
        "The answer is Paris because the Seine flows there.",
        "The answer is Paris (France).",
        "The answer is London. Wait, that is wrong. The answer is Paris.",
        "<think>The answer is London.</think>The answer is Paris.",
        "La respuesta es Paris.",
        "\u7b54\u6848\u662fParis\u3002",
        "The answer is Paris.<|im_end|>",
    ],
)
def test_what_stands_behind_a_cue_is_the_answer(text: str) -> None:
    assert text_match(text, "Paris") == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "The answer is London.",
        "The answer is London.\nParis",
        "Paris. The answer is London.",
        "The answer is not Paris.",
        "Paris is wrong.",
        "Paris is also likely.",
        "Paris would be a guess.",
        "The answer isn't Paris.",
        "The answer is Paris or London.",
        "The answer is Paris, or maybe London.",
        "The answer is Paris, London, Rome.",
        "The answer is Paris. Or London.",
        "The answer is Paris. Wait, the answer is London.",
        "The answer is Paris. No, London.",
        "Is the answer Paris?",
        "The answer is Paris?",
        "If the answer is Paris, I am lucky.",
        "Paris <answer></answer>",
        "<think>The answer is Paris.</think><answer> </answer>",
        "The answer is Paris. \\boxed{}",
        "<think>Paris</think>I cannot tell.",
        "<answer>London</answer> The answer is Paris.",
    ],
)
def test_other_words_denials_and_hedges_behind_a_cue_are_not(text: str) -> None:
    assert text_match(text, "Paris") == 0.0


def test_a_framed_box_states_an_answer() -> None:
    assert text_match("\\framebox{Paris}", "Paris") == 1.0
    assert text_match("So it is \\fbox{Lyon}.", "Paris") == 0.0
    assert text_match("Paris \\framebox{}", "Paris") == 0.0


@pytest.mark.parametrize(
    "text",
    ["It is false that the answer is Paris.", "Some say the answer is Paris.", "My wrong answer is Paris."],
)
def test_an_answer_that_is_doubted_is_not_given(text: str) -> None:
    assert text_match(text, "Paris") == 0.0
