"""Chat messages of rows: histories with tool calls, ShareGPT's layout, system messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpo.envs.rows.messages import read_messages
from grpo.plugins.errors import DatasetError


def history(call: dict[str, Any], answer: Any = "12") -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "What time is it?"},
        call,
        {"role": "tool", "tool_call_id": "c1", "content": answer},
        {"role": "user", "content": "And in Oslo?"},
    ]


def calls(arguments: Any) -> list[dict[str, Any]]:
    return [{"id": "c1", "type": "function", "function": {"name": "time", "arguments": arguments}}]


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_a_message_that_calls_tools_needs_no_content(content: dict[str, Any]) -> None:
    _, called, _, _ = read_messages(
        history({"role": "assistant", "tool_calls": calls({"zone": "CET"}), **content}), "p"
    )
    assert called == {"role": "assistant", "content": "", "tool_calls": calls({"zone": "CET"})}


@pytest.mark.parametrize("given", [{"x": None, "y": [1, "a"]}, json.dumps({"x": None, "y": [1, "a"]})])
def test_arguments_are_objects_as_they_were_written(given: Any) -> None:
    _, called, _, _ = read_messages(history({"role": "assistant", "tool_calls": calls(given)}), "p")
    assert called["tool_calls"] == calls({"x": None, "y": [1, "a"]})


def test_arguments_that_are_no_object_of_json_stay_text() -> None:
    _, called, _, _ = read_messages(history({"role": "assistant", "tool_calls": calls("zone=CET")}), "p")
    assert called["tool_calls"] == calls("zone=CET")


def test_a_tool_may_return_nothing_and_a_table_may_have_empty_calls() -> None:
    call = {"role": "assistant", "content": "I look.", "tool_calls": calls({})}
    given = [{**message, "tool_calls": message.get("tool_calls", [])} for message in history(call, "")]
    messages = read_messages(given, "p")
    assert [message["content"] for message in messages] == ["What time is it?", "I look.", "", "And in Oslo?"]
    assert ["tool_calls" in message for message in messages] == [False, True, False, False]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ({"role": "assistant", "content": ""}, "message 2 is empty"),
        ({"role": "assistant", "content": None}, "it has no content"),
        ({"role": "assistant", "tool_calls": []}, "it has no content"),
        ({"role": "assistant", "tool_calls": "time()"}, "'tool_calls' must be a list of objects, found text"),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]}, "write a tool call as"),
        ({"from": "narrator", "value": "x"}, "nobody is named 'narrator'.*human, gpt"),
    ],
)
def test_a_message_that_cannot_be_shown_is_refused(message: dict[str, Any], fault: str) -> None:
    with pytest.raises(DatasetError, match=fault):
        read_messages(history(message), "p")


def test_the_layout_of_sharegpt_is_read() -> None:
    given = [{"from": who, "value": who} for who in ("system", "human", "gpt", "human")]
    assert read_messages(given, "p") == [
        {"role": role, "content": who}
        for role, who in (("system", "system"), ("user", "human"), ("assistant", "gpt"), ("user", "human"))
    ]


def test_an_empty_system_message_is_none_and_another_one_takes_its_place_unread() -> None:
    user = {"role": "user", "content": "What?"}
    for content in ("", None):
        assert read_messages([{"role": "system", "content": content}, user], "p") == [user]
    assert read_messages([{"role": "system", "content": 7}, user], "p", "") == [user]
    assert read_messages([user], "p", "Be brief.") == [{"role": "system", "content": "Be brief."}, user]
