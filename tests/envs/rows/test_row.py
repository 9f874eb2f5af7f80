"""Rows of a prompt and an answer: what belongs to a prompt, what is left, and answers of all types."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from grpo.envs.rows.row import Pair, choose_columns, is_plain, read_pair, unused_columns
from grpo.plugins.errors import DatasetError


def read(row: dict[str, Any], **named: str) -> Pair:
    return read_pair(row, "row 1", choose_columns(row, "row 1", named))


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (True, "true"),
        (False, "false"),
        (Decimal("42.00"), "42"),
        (Decimal("1.50"), "1.5"),
        (Decimal("1E+3"), "1000"),
        (2**70, str(2**70)),
        (0.1, "0.1"),
        (datetime.date(2024, 5, 1), "2024-05-01"),
        (datetime.datetime(2024, 5, 1), "2024-05-01"),
        (datetime.datetime(2024, 5, 1, 3, 4), "2024-05-01 03:04:00"),
        (datetime.time(3, 4), "03:04:00"),
        ([True, "yes"], ["true", "yes"]),
    ],
)
def test_answers_of_all_types_are_texts(answer: Any, gold: Any) -> None:
    assert read({"prompt": "a", "answer": answer}).answer == gold


@pytest.mark.parametrize("answer", [float("nan"), Decimal("NaN"), b"a", {"a": 1}, None, datetime.timedelta(1)])
def test_what_is_no_answer_is_refused(answer: Any) -> None:
    with pytest.raises(DatasetError, match="row 1: the column 'answer'"):
        read({"prompt": "a", "answer": answer})


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [
        ({"instruction": "Add.", "input": "1 and 2", "output": "3"}, "Add.\n\n1 and 2", "3"),
        ({"instruction": "Add 1 and 2.", "input": "", "output": "3"}, "Add 1 and 2.", "3"),
        ({"instruction": "Add 1 and 2.", "input": None, "output": "3"}, "Add 1 and 2.", "3"),
        (
            {"context": "It is 3.", "question": "What?", "answers": {"text": ["3"], "answer_start": [6]}},
            "It is 3.\n\nWhat?",
            ["3"],
        ),
        ({"passage": "It is.", "question": "Is it?", "answer": True}, "It is.\n\nIs it?", "true"),
        ({"context": ["a", "b"], "question": "What?", "answer": 1}, "a\n\nb\n\nWhat?", "1"),
        (
            {"article": "It is 3.", "question": "What?", "options": ["2", "3"], "answer": "B"},
            "It is 3.\n\nWhat?\n\nA. 2\nB. 3",
            ["B", "3"],
        ),
        ({"prompt": "Read: It is 3. What?", "context": "It is 3.", "answer": 3}, "Read: It is 3. What?", "3"),
        ({"question": "What?", "context": {"title": ["a"]}, "answer": 1}, "What?", "1"),
        ({"prompt": [{"role": "user", "content": "All."}], "choices": ["a", "b"], "answer": "a"}, "All.", "a"),
        ({"Problem": "What?", "Solution": "So 3.", "Answer": 3}, "What?", "3"),
        ({"prompt": [{"role": "user", "content": "All."}], "reward_model": {"ground_truth": "3"}}, "All.", "3"),
        ({"question": "What?", "options": ["A)2", "B)3"], "correct": "B"}, "What?\n\nA. 2\nB. 3", ["B", "3"]),
    ],
)
def test_known_layouts_are_read_whole(row: dict[str, Any], question: str, answer: Any) -> None:
    pair = read(row)
    assert (pair.question, pair.answer) == (question, answer)
    assert pair.messages[-1]["content"] == question


def test_a_named_context_and_choices_go_into_the_last_message_of_the_user_and_none_is_left_out() -> None:
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}]
    row = {"prompt": [*messages, {"role": "user", "content": "What?"}], "doc": "It is 3.", "menu": ["2", "3"]}
    assert read(row, context="doc", choices="menu").question == "It is 3.\n\nWhat?\n\nA. 2\nB. 3"
    assert row["prompt"][-1] == {"role": "user", "content": "What?"}, "the row stays"
    assert read({"question": "What?", "context": "It is 3."}, context="").question == "What?"
    with pytest.raises(DatasetError, match=r'must be text or a list of texts, found a number. .* context=""'):
        read({"question": "What?", "n": 3}, context="n")
    with pytest.raises(DatasetError, match=r'must be a list of texts, or an object of letters.* choices=""'):
        read({"question": "What?", "n": [[3]]}, choices="n")


def test_columns_with_content_that_nobody_reads_are_found() -> None:
    row = {
        "question": "a",
        "reward_model": {"gold": 1},
        "level": 3,
        "source": "x",
        "tags": ["y"],
        "none": None,
        "e": "",
    }
    columns = choose_columns(row, "row 1", {"answer": "reward_model.gold"})
    assert unused_columns(row, columns) == ["source", "tags"]


def test_only_rows_that_need_no_look_pass_without_one() -> None:
    columns = choose_columns({"prompt": "a", "answer": "b"}, "row 1", {})
    assert is_plain({"prompt": "a", "answer": "b"}, columns)
    for row in ({"prompt": "é", "answer": "b"}, {"prompt": " ", "answer": "b"}, {"prompt": "a", "answer": 1}, {}, "a"):
        assert not is_plain(row, columns)
