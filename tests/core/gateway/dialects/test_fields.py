"""What the bodies of all APIs have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpo.core.gateway.conversation import ChatTurn, Refused, ToolUse
from grpo.core.gateway.dialects.fields import (
    UNREADABLE,
    arguments_of,
    body_of,
    event,
    in_order_of_calls,
    stops_in,
    thread_of,
    whole_number,
)


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        ('{"b": 1, "a": {"x": [1, null]}}', {"a": {"x": [1, None]}, "b": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        ("  ", {}),
        (None, {}),
        ("{}", {}),
        ('{"a": ', {UNREADABLE: '{"a": '}),
        ('{"a": NaN}', {UNREADABLE: '{"a": NaN}'}),
        ("[1]", {UNREADABLE: "[1]"}),
        ('"ls"', {UNREADABLE: '"ls"'}),
        ([1], {UNREADABLE: "[1]"}),
        ("[" * 100_000, {UNREADABLE: "[" * 100_000}),
        ('{"a": "\\ud83d"}', {"a": "?"}),
    ],
)
def test_arguments_are_read_from_text_and_from_objects(value: Any, arguments: dict[str, Any]) -> None:
    assert arguments_of(value) == arguments


@pytest.mark.parametrize("arguments", [{UNREADABLE: '{"a": '}, {"é": {"\u2028": ["\U0001f600", 1.5, None, True]}}, {}])
def test_arguments_that_were_written_are_read_again(arguments: dict[str, Any]) -> None:
    assert arguments_of(json.dumps(arguments, ensure_ascii=False)) == arguments
    assert arguments_of(json.dumps(arguments)) == arguments


def test_half_a_surrogate_pair_becomes_a_question_mark_and_a_pair_stays() -> None:
    assert body_of(rb'{"a": ["x\ud83d", "\ud83d\ude00", "\uDE00"]}') == {"a": ["x?", "\U0001f600", "?"]}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'"a"', b'{"a": NaN}', b"1" * 10_000, b"[" * 100_000]
)
def test_a_body_that_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match=r"The body is .*\. Send a JSON object\.") as refused:
        body_of(data)
    assert refused.value.status == 400
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, [], {}, 129])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(Refused, match=r"n is .*Send a whole number from 1 to 128\."):
        whole_number({"n": value}, ("n",), 128)


def test_the_first_of_several_numbers_counts() -> None:
    assert whole_number({"a": None, "b": 3.0, "c": 4}, ("a", "b", "c")) == 3
    assert whole_number({}, ("a",)) is None


def test_texts_that_end_an_answer() -> None:
    assert stops_in("a", "stop") == ("a",)
    assert stops_in(["a", "", "b"], "stop") == ("a", "b")
    assert stops_in(None, "stop") == ()
    wrongs: list[Any] = [1, [1], {}, [None]]
    for wrong in wrongs:
        with pytest.raises(Refused, match="Send a text or a list of texts"):
            stops_in(wrong, "stop")
    with pytest.raises(Refused, match=r"stop has 65 texts\. Send at most 64"):
        stops_in(["a"] * 65, "stop")


def called(*ids: str) -> ChatTurn:
    return ChatTurn("assistant", "", tuple(ToolUse("f", {}, name) for name in ids))


def answers(turns: tuple[ChatTurn, ...]) -> list[str]:
    return [turn.answers for turn in turns]


def test_answers_of_tools_come_in_the_order_of_the_calls() -> None:
    turns = [called("a", "b"), *(ChatTurn("tool", "", answers=name) for name in "zba"), called("c", "d")]
    turns += [ChatTurn("tool", "", answers=name) for name in ("d", "c", "a")]
    assert answers(in_order_of_calls(turns)) == ["", "a", "b", "z", "", "c", "d", "a"]


def test_answers_without_calls_and_without_ids_stay_where_they_are() -> None:
    loose = [ChatTurn("tool", text) for text in "ba"]
    assert [turn.text for turn in in_order_of_calls([*loose, called("", ""), *loose])] == ["b", "a", "", "b", "a"]


def test_a_user_message_between_answers_keeps_its_place() -> None:
    turns = [called("a", "b"), ChatTurn("tool", "", answers="b"), ChatTurn("user", "x"), ChatTurn("tool", "")]
    assert in_order_of_calls(turns) == tuple(turns)


def test_the_headers_of_programs_name_their_conversation() -> None:
    assert thread_of({}) == ""
    assert thread_of({"x-claude-code-session-id": "s"}) == "claude-code s"
    assert thread_of({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}) == "claude-code s a"
    assert thread_of({"session-id": "s", "thread-id": "t"}) == "codex t"
    assert thread_of({"session-id": "s"}) == "codex s"
    assert thread_of({"x-session-id": "s"}) == "session s"


def test_an_event_is_one_line_of_ascii() -> None:
    assert event({"a": "é\u2028\n"}, "x") == b'event: x\ndata: {"a": "\\u00e9\\u2028\\n"}\n\n'
    assert event("[DONE]") == b"data: [DONE]\n\n"
