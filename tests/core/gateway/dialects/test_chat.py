"""Chat completions: requests as programs send them, and what is written back."""

from __future__ import annotations

from typing import Any

import pytest
from reply_samples import REPLIES, events_of
from scripted_desk import said

from grpo.core.gateway.conversation import Ask, ChatTurn, Refused, Reply, ToolUse
from grpo.core.gateway.dialects import chat
from grpo.core.gateway.dialects.fields import UNREADABLE

USER: dict[str, Any] = {"role": "user", "content": "hi"}
BASH = {
    "type": "function",
    "function": {"name": "bash", "description": "Runs.", "parameters": {"type": "object", "properties": {"c": {}}}},
}


def read(*messages: Any, **fields: Any) -> Ask:
    return chat.read({"model": "m", "messages": [*messages], **fields}, {})


def call(arguments: Any, name: str = "bash", id: str = "1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_conversation_of_opencode() -> None:
    """Calls without a text have "", arguments are spelled anew, answers are plain texts."""
    ask = read(
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": '"go"'},
        {"role": "assistant", "content": "Look.", "tool_calls": [call('{"c":"ls","d":"x"}'), call("{}", id="2")]},
        {"role": "tool", "tool_call_id": "1", "content": "a\n"},
        {"role": "tool", "tool_call_id": "2", "content": "(no output)"},
        {"role": "assistant", "content": "", "tool_calls": [call('{"c":"cat a"}', id="3")]},
        {"role": "tool", "tool_call_id": "3", "content": ""},
        max_tokens=32000,
        stream=True,
        stream_options={"include_usage": True},
        tool_choice="auto",
        tools=[BASH],
    )
    assert ask == Ask(
        messages=(
            ChatTurn("system", "Be brief.\n"),
            ChatTurn("user", '"go"'),
            ChatTurn("assistant", "Look.", (ToolUse("bash", {"d": "x", "c": "ls"}), ToolUse("bash", {}))),
            ChatTurn("tool", "a\n"),
            ChatTurn("tool", "(no output)"),
            ChatTurn("assistant", "", (ToolUse("bash", {"c": "cat a"}),)),
            ChatTurn("tool", ""),
        ),
        tools=(BASH,),
        model="m",
        max_tokens=32000,
        stream=True,
        usage=True,
    )


def test_a_conversation_of_qwen_code() -> None:
    """Texts are lists of one part, answers of tools too, a text that is not there is null."""
    ask = read(
        {"role": "user", "content": [{"type": "text", "text": "context"}]},
        {"role": "assistant", "content": " Got it. "},
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": None, "tool_calls": [call('{"c": "ls"}')], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "Output: a"}]},
        temperature=None,
    )
    assert [(turn.role, turn.text) for turn in ask.messages] == [
        ("user", "context"),
        ("assistant", "Got it."),
        ("user", "go"),
        ("assistant", ""),
        ("tool", "Output: a"),
    ]
    assert ask.ignored == ()


def test_a_conversation_of_smolagents() -> None:
    """It asks for a call, ends answers at texts, and writes calls and their answers as texts."""
    ask = read(
        {"role": "system", "content": [{"type": "text", "text": "You call tools."}]},
        {"role": "user", "content": [{"type": "text", "text": "New task:\ngo"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Calling tools:\n[{'id': '1'}]"}]},
        {"role": "user", "content": [{"type": "text", "text": "Observation:\na"}]},
        stop=["Observation:", "Calling tools:"],
        tool_choice="required",
        tools=[BASH],
    )
    assert ask.stop == ("Observation:", "Calling tools:")
    assert ask.ignored == ("tool_choice=required",)
    assert [turn.role for turn in ask.messages] == ["system", "user", "assistant", "user"]


def test_roles_and_parts() -> None:
    ask = read(
        {"role": "developer", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}], "name": "x"},
        {"role": "assistant", "content": [{"type": "text", "text": "d"}, {"type": "refusal", "refusal": "e"}]},
        {"role": "system", "content": None},
    )
    assert ask.messages == (
        ChatTurn("system", "a"),
        ChatTurn("user", "b\nc"),
        ChatTurn("assistant", "de"),
        ChatTurn("system", ""),
    )


@pytest.mark.parametrize("arguments", ['{"b": 2, "a": 1}', '{"a":1,\n"b":2}', {"a": 1, "b": 2}])
def test_arguments_are_equal_however_they_are_spelled(arguments: Any) -> None:
    asked = read(USER, {"role": "assistant", "tool_calls": [call(arguments)]})
    assert asked.messages[1] == ChatTurn("assistant", "", (ToolUse("bash", {"a": 1, "b": 2}, "other"),))


def test_arguments_that_are_no_json_are_kept() -> None:
    asked = read(USER, {"role": "assistant", "tool_calls": [call('{"a": ')]})
    assert asked.messages[1].calls[0].arguments == {UNREADABLE: '{"a": '}


def test_what_the_run_decides_is_named() -> None:
    ask = read(
        USER,
        temperature=0,
        top_p=0.5,
        seed=3,
        logprobs=True,
        response_format={"type": "json_schema", "json_schema": {}},
        tool_choice={"type": "function", "function": {"name": "bash"}},
        tools=[BASH, {"type": "custom", "custom": {"name": "x"}}],
        user=None,
    )
    assert ask.ignored == (
        "logprobs",
        "response_format",
        "seed",
        "temperature",
        "tool_choice=function",
        "tools.custom",
        "top_p",
    )
    assert ask.tools == (BASH,)


def test_tools_are_reduced_to_their_schema() -> None:
    tools = [{"type": "function", "function": {"name": "f", "strict": True}, "cache_control": {}}]
    function = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert read(USER, tools=tools).tools == ({"type": "function", "function": function},)


def test_limits_and_the_number_of_answers() -> None:
    assert read(USER).max_tokens is None
    assert read(USER).count == 1
    assert read(USER, max_tokens=5, max_completion_tokens=4, n=3).max_tokens == 4
    assert read(USER, max_tokens=5, max_completion_tokens=None, n=3).max_tokens == 5
    assert read(USER, n=3).count == 3


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"messages": None}, "The request has no message"),
        ({"messages": []}, "The request has no message"),
        ({"messages": "hi"}, "messages is a text. Send a list of objects"),
        ({"messages": [1]}, r"messages\[0\] is a number"),
        ({"messages": [{"role": "robot"}]}, r"messages\[0\].role is 'robot'"),
        ({"messages": [{"role": ["user"]}]}, r"messages\[0\].role is \['user'\]"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\].role is None"),
        ({"messages": [{"role": "user", "content": 1}]}, r"messages\[0\].content is a number"),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, r"messages\[0\].content is an object"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, r"messages\[0\].content\[0\] is a text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            r"messages\[0\].content\[0\] is of type 'image_url', and the policy reads text alone. Send text parts",
        ),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "is of type None"),
        ({"messages": [{"role": "assistant", "tool_calls": {"a": 1}}]}, r"tool_calls is an object"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, r"tool_calls\[0\].function is missing"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\].function is missing"),
        ({"tools": [{"type": "function", "function": {}}]}, r"tools\[0\] has no name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]}, "parameters of the tool 'f'"),
        ({"functions": [{"name": "f"}]}, "Send them as 'tools'"),
        ({"stream": "yes"}, "stream is a text. Send true or false"),
        ({"model": 3}, "model is a number"),
        ({"n": 0}, "n is 0. Send a whole number from 1 to 128"),
        ({"max_tokens": "many"}, "max_tokens is 'many'"),
        ({"stop": [1]}, "stop is a list"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem) as refused:
        chat.read({"messages": [USER], **fields}, {})
    assert refused.value.status == 400


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_that_comes_back_is_the_same_turn(reply: Reply) -> None:
    message = chat.whole(Ask(()), [reply])["choices"][0]["message"]
    assert read(USER, message).messages[1] == reply.turn


@pytest.mark.parametrize("reply", REPLIES)
def test_events_have_what_a_whole_answer_has(reply: Reply) -> None:
    *chunks, done = events_of(chat.events(Ask(()), [reply]))
    assert done == ("", "[DONE]")
    choices = [chunk["choices"][0] for _, chunk in chunks]
    message = choices[0]["delta"] | {"tool_calls": [it for one in choices for it in one["delta"].get("tool_calls", ())]}
    assert read(USER, message).messages[1] == reply.turn
    assert [it["index"] for it in message["tool_calls"]] == [*range(len(reply.turn.calls))]
    whole = chat.whole(Ask(()), [reply])
    assert choices[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert all("usage" not in chunk for _, chunk in chunks)


def test_usage_is_streamed_where_it_is_asked_for() -> None:
    stream = chat.events(Ask((), model="m", usage=True), [said("a"), said("b")])
    *chunks, last, _ = [data for _, data in events_of(stream)]
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 5, "completion_tokens": 14, "total_tokens": 19}
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 0, 1, 1]
    assert {chunk["id"] for chunk in chunks} == {last["id"]}


def test_ends() -> None:
    replies = [said("a"), said("a", finish="length"), said("", ToolUse("f", {}, "id-1"))]
    choices = chat.whole(Ask(()), replies)["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "length", "tool_calls"]
    assert choices[2]["message"]["tool_calls"][0]["id"] == "id-1"
    assert choices[2]["message"]["content"] is None


def test_errors() -> None:
    error = {"message": "no room", "type": "invalid_request_error", "param": None, "code": "context_length_exceeded"}
    refused = Refused(400, "no room", "context_length_exceeded")
    assert chat.error(refused) == {"error": error}
    assert events_of(chat.error_events(refused)) == [("", {"error": error})]
