"""The texts that a reward is checked with mean what they claim to mean."""

from __future__ import annotations

from decimal import Decimal

import pytest

from grpo.core.check.answers import Example, Slot, find_slot
from grpo.core.check.texts import (
    MEGABYTE,
    answer_forms,
    farming,
    guesses,
    layout_forms,
    megabytes,
    outside_texts,
    silences,
    worse_answers,
)

TAGGED = Example("<think>\n6 * 7 = 42\n</think>\n<answer>42</answer>\n", {"question": "6 * 7?", "answer": "42"})
PLAIN = Example("It is 42", {"answer": "42"})
CITY = Example("It is Paris", {"answer": "Paris"})


def slot(example: Example) -> Slot:
    found = find_slot(example, "answer")
    assert found is not None
    return found


@pytest.mark.parametrize("example", [TAGGED, PLAIN, CITY], ids=["tags", "one line", "a word"])
def test_another_layout_holds_the_same_words_and_is_another_text(example: Example) -> None:
    forms = dict(layout_forms(example))
    assert {"final newline", "trailing space", "leading space"} <= forms.keys()
    for name, form in forms.items():
        assert form.text.split() == example.text.split(), name
        assert form.text != example.text, name
        assert form.row == example.row, name


def test_line_ends_are_made_windows_once() -> None:
    assert "CRLF" not in dict(layout_forms(PLAIN))
    once = dict(layout_forms(TAGGED))["CRLF"]
    assert once.text.count("\r\n") == TAGGED.text.count("\n")
    assert dict(layout_forms(once))["CRLF"].text == once.text


def test_reasoning_on_one_line_is_broken_into_lines_and_the_answer_is_not() -> None:
    form = dict(layout_forms(Example("<think>six times seven</think><answer>42 is it</answer>", {})))
    assert form["multi-line reasoning"].text == "<think>six\ntimes\nseven</think><answer>42 is it</answer>"
    lined = Example("<think>six\ntimes seven</think><answer>42</answer>", {})
    assert "multi-line reasoning" not in dict(layout_forms(lined)), "it has lines already"
    assert "multi-line reasoning" not in dict(layout_forms(PLAIN)), "it has no blocks"


def test_a_number_written_otherwise_is_still_the_gold() -> None:
    forms = list(answer_forms(slot(TAGGED)))
    assert forms
    for _, form in forms:
        again = find_slot(form, "answer")
        assert again is not None
        assert again.value == 42
    assert list(answer_forms(slot(CITY))) == []


@pytest.mark.parametrize("gold", ["42", "-7", "0", "0.5", "1200", "Paris"])
def test_a_worse_answer_is_wrong(gold: str) -> None:
    example = Example(f"It is {gold}", {"answer": gold})
    worse = list(worse_answers(slot(example)))
    assert worse[-1][0] == "wrong"
    assert len(worse) == (1 if gold == "Paris" else 2)
    for _, form in worse:
        assert find_slot(form, "answer") is None, form.text


def test_near_is_nearer_than_wrong() -> None:
    distances = [abs(Decimal(form.text.split()[-1]) - 42) for _, form in worse_answers(slot(PLAIN))]
    assert distances == sorted(distances)


def test_words_are_silence_only_for_what_claims_correctness() -> None:
    assert [form.text.strip() for _, form in silences(PLAIN, claims=False)] == ["", ""]
    assert [form.text.strip() for _, form in silences(PLAIN, claims=True)] == ["", "", "I do not know."]


def test_farming_keeps_the_tags_in_their_lines_and_nothing_between_them() -> None:
    ((_, form),) = farming(TAGGED)
    assert form.text == "<think>\n\n</think>\n<answer></answer>\n"
    assert list(farming(PLAIN)) == []


@pytest.mark.parametrize("example", [TAGGED, PLAIN, CITY], ids=["tags", "one line", "a word"])
def test_a_guess_holds_the_gold_beside_others_or_only_what_looks_like_it(example: Example) -> None:
    gold = example.row["answer"]
    for name, form in guesses(slot(example)):
        if name == "look-alikes":
            assert gold not in form.text.rpartition("<answer>")[2]
            assert form.text.isascii() is False
        else:
            assert gold in form.text
            assert len(form.text.split()) > 1


def test_every_number_is_there_once() -> None:
    first = next(form for name, form in guesses(slot(PLAIN)) if name == "every number")
    assert sorted(map(int, first.text.split())) == list(range(101))


def test_outside_texts_hold_no_answer() -> None:
    texts = [form.text for _, form in outside_texts(TAGGED)]
    assert texts[0] == "\n".join(["6 * 7?"] * 3)
    assert all("42" not in text for text in texts)
    assert [name for name, _ in outside_texts(PLAIN)] == ["override"]


def test_a_megabyte_is_a_megabyte() -> None:
    sizes = [len(form.text) for _, form in megabytes(TAGGED)]
    assert set(sizes) == {MEGABYTE}
    assert any(form.text.startswith("<think>" * 3) for _, form in megabytes(TAGGED))
