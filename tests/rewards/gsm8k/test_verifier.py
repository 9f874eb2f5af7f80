"""The GSM8K verifier on labelled completions and on every gold answer of the data set."""

from collections.abc import Callable
from typing import Any

import pytest

from grpo.plugins.types import Verdict
from grpo.rewards.gsm8k.verifier import gsm8k

DISAGREEMENTS: dict[str, str] = {}
"""Labelled completions that the verifier judges otherwise than their label: the row's id, and why."""


def test_it_agrees_with_the_labelled_completions(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = read_cases("cases/labelled_completions.jsonl")
    judged = {row["id"]: gsm8k(row["completion"], row["gold"]) for row in rows}
    differing = {
        row["id"]: f"label {row['expected']}, gold {row['gold']}: {judged[row['id']]}"
        for row in rows
        if judged[row["id"]].ok is not row["expected"]
    }
    assert len(rows) >= 780
    assert len(differing) <= 0.01 * len(rows), differing
    assert differing.keys() == DISAGREEMENTS.keys(), differing


@pytest.mark.slow
@pytest.mark.parametrize(("split", "size"), [pytest.param("train", 7473, marks=pytest.mark.nightly), ("test", 1319)])
def test_every_gold_answer_verifies_against_itself_in_every_form(
    read_cases: Callable[[str], list[dict[str, Any]]], split: str, size: int
) -> None:
    rows = read_cases(f"gsm8k/{split}.jsonl")
    assert len(rows) == size
    failed = []
    for row in rows:
        worked = row["answer"]
        steps, _, bare = worked.partition("####")
        bare = bare.strip()
        texts = [
            worked,
            bare,
            f"<reasoning>\n{steps}\n</reasoning>\n<answer>\n{bare}\n</answer>\n",
            f"<start_working_out>{steps}<end_working_out><SOLUTION>{bare}</SOLUTION>",
            f"{steps}So it is \\boxed{{{bare}}}.",
            f"{steps}The answer is {bare}.",
        ]
        failed += [text for text in texts if gsm8k(text, worked).ok is not True]
        failed += [text for text in texts[:2] if gsm8k(text, bare).ok is not True]
    assert failed == []


@pytest.mark.slow
def test_worked_answers_without_their_last_line_mostly_verify_from_prose(
    read_cases: Callable[[str], list[dict[str, Any]]],
) -> None:
    """98.9% here; the rest end in a remark, a unit that the question converts, or a comparison."""
    rows = read_cases("gsm8k/train.jsonl") + read_cases("gsm8k/test.jsonl")
    right = sum(gsm8k(row["answer"].partition("####")[0], row["answer"]).ok is True for row in rows)
    assert right / len(rows) > 0.985


@pytest.mark.parametrize("wrong", ["{}1", "-{}", "0.{}", "{}.5", "{} or 0.5"])
def test_no_gold_answer_verifies_against_a_wrong_one(
    read_cases: Callable[[str], list[dict[str, Any]]], wrong: str
) -> None:
    for row in read_cases("gsm8k/test.jsonl"):
        bare = row["answer"].rpartition("####")[2].strip()
        if bare != "0":
            assert gsm8k(f"<answer>{wrong.format(bare.lstrip('-'))}</answer>", bare).ok is (
                wrong == "-{}" and bare.startswith("-")
            )


def test_verdicts_say_what_was_found_and_why() -> None:
    assert gsm8k("<answer>$71.0</answer>", "72") == Verdict(False, "$71.0", "differs from the gold 72 (tag)")
    assert gsm8k("Nothing.", "72") == Verdict(False, None, "no number and no marked answer in the completion")
    assert gsm8k("<answer>71 or 72</answer>", "72").extracted == "71 or 72"
    undecided = gsm8k("#### 72", "a lot")
    assert (undecided.ok, undecided.extracted) == (None, "72")
    assert "'a lot' is not one number" in undecided.reason
