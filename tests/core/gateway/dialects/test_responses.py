"""Responses: requests as programs send them, and what is written back."""

from __future__ import annotations

from typing import Any

import pytest
from reply_samples import REPLIES, events_of
from scripted_desk import said

from grpo.core.gateway.conversation import Ask, ChatTurn, Refused, Reply, ToolUse
from grpo.core.gateway.dialects import responses

USER: dict[str, Any] = {"role": "user", "content": "hi"}


def read(*items: Any, **fields: Any) -> Ask:
    return responses.read({"model": "m", "input": [*items], **fields}, {})


def message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "id": "msg_1", "role": role, "content": [{"type": kind, "text": text}]}


def call(arguments: Any, id: str = "1") -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "name": "sh", "arguments": arguments, "call_id": id}


def output(value: Any, id: str = "1") -> dict[str, Any]:
    return {"type": "function_call_output", "id": f"fco_{id}", "call_id": id, "output": value}


def test_a_conversation_of_codex() -> None:
    ask = responses.read(
        {
            "model": "m",
            "input": [
                message("developer", "Be brief."),
                message("developer", "<skills>"),
                message("user", "<environment>"),
                message("user", "go"),
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                message("assistant", "Let me look.") | {"status": "completed"},
                call('{"cmd":"ls"}'),
                {"type": "reasoning", "id": "rs_2", "summary": []},
                call('{"cmd": "pwd"}', "2"),
                output("Chunk ID: 1\na\n", "2"),
                output([{"type": "input_text", "text": "b"}]),
                call("{}", "3"),
                output("", "3"),
            ],
            "instructions": "",
            "tools": [
                {"type": "function", "name": "sh", "description": "Runs.", "strict": False, "parameters": {"a": 1}},
                {"type": "local_shell"},
                {"type": "web_search", "external_web_access": False},
                {"type": "custom", "name": "apply_patch", "format": {}},
                {"type": "namespace", "name": "n", "tools": []},
            ],
            "stream": True,
            "tool_choice": "auto",
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "x",
            "client_metadata": {"thread_id": "t"},
        },
        {"session-id": "s", "thread-id": "t"},
    )
    calls = (ToolUse("sh", {"cmd": "ls"}), ToolUse("sh", {"cmd": "pwd"}))
    assert ask.messages == (
        ChatTurn("system", "Be brief."),
        ChatTurn("system", "<skills>"),
        ChatTurn("user", "<environment>"),
        ChatTurn("user", "go"),
        ChatTurn("assistant", "Let me look.", calls),
        ChatTurn("tool", "b"),
        ChatTurn("tool", "Chunk ID: 1\na\n"),
        ChatTurn("assistant", "", (ToolUse("sh", {}),)),
        ChatTurn("tool", ""),
    )
    schema = {"name": "sh", "description": "Runs.", "parameters": {"a": 1}}
    assert ask.tools == ({"type": "function", "function": schema},)
    assert ask.thread == "codex t"
    assert ask.stream
    assert ask.ignored == (
        "client_metadata",
        "include",
        "prompt_cache_key",
        "store",
        "tools.custom",
        "tools.local_shell",
        "tools.namespace",
        "tools.web_search",
    )


def test_a_text_is_the_message_of_a_user() -> None:
    ask = responses.read({"input": "hi", "instructions": "Be brief.", "max_output_tokens": 9}, {})
    assert ask.messages == (ChatTurn("system", "Be brief."), ChatTurn("user", "hi"))
    assert ask.max_tokens == 9


def test_a_message_after_another_is_a_turn_of_its_own() -> None:
    ask = read(USER, message("assistant", "a"), message("assistant", "b"), call("{}"))
    assert [(turn.text, len(turn.calls)) for turn in ask.messages[1:]] == [("a", 0), ("b", 1)]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"input": None}, "The request has no message"),
        ({"input": {"a": 1}}, "input is an object"),
        ({"previous_response_id": "resp_1"}, "nothing is stored here. Send the whole conversation as 'input'"),
        ({"conversation": "conv_1"}, "nothing is stored here"),
        ({"prompt": {"id": "p"}}, "nothing is stored here"),
        ({"background": True}, "Leave out 'background'"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "Send the item itself"),
        ({"input": [{"type": "computer_call"}]}, r"input\[0\] is of type 'computer_call'"),
        ({"input": [{"role": "robot", "content": "x"}]}, r"input\[0\].role is 'robot'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "'input_image', and the policy reads"),
        ({"input": [USER, output([{"type": "input_image"}])]}, r"input\[1\].output\[0\] is of type 'input_image'"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\] has no name"),
        ({"max_output_tokens": 0}, "max_output_tokens is 0"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem) as refused:
        responses.read({"input": [USER], **fields}, {})
    assert refused.value.status == 400


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_that_comes_back_is_the_same_turn(reply: Reply) -> None:
    output = responses.whole(Ask(()), [reply])["output"]
    assert read(USER, *output, USER).messages == (ChatTurn("user", "hi"), reply.turn, ChatTurn("user", "hi"))


@pytest.mark.parametrize("reply", REPLIES)
def test_events_come_in_the_order_of_the_api(reply: Reply) -> None:
    events = events_of(responses.events(Ask(()), [reply]))
    assert [data["sequence_number"] for _, data in events] == [*range(len(events))]
    assert all(name == data["type"] for name, data in events)
    kinds = [name.removeprefix("response.") for name, _ in events]
    text = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
    called = ["function_call_arguments.delta", "function_call_arguments.done"]
    items = [*([text] if reply.turn.text or not reply.turn.calls else []), *(called for _ in reply.turn.calls)]
    steps = [step for item in items for step in ("output_item.added", *item, "output_item.done")]
    assert kinds == ["created", "in_progress", *steps, "incomplete" if reply.finish == "length" else "completed"]
    final = events[-1][1]["response"]
    assert [data["item"] for name, data in events if name == "response.output_item.done"] == final["output"]
    assert read(USER, *final["output"]).messages[1] == reply.turn
    assert events[0][1]["response"]["id"] == final["id"]


def test_ends() -> None:
    cut = responses.whole(Ask((), max_tokens=7), [said("a", finish="length")])
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    whole = responses.whole(Ask(()), [said("a")])
    assert (whole["status"], whole["incomplete_details"]) == ("completed", None)
    assert (whole["usage"]["input_tokens"], whole["usage"]["output_tokens"], whole["usage"]["total_tokens"]) == (
        5,
        7,
        12,
    )


def test_errors() -> None:
    refused = Refused(400, "no room", "context_length_exceeded")
    failed, error = events_of(responses.error_events(refused))
    assert failed[0] == "response.failed"
    assert failed[1]["response"]["error"] == {"code": "context_length_exceeded", "message": "no room"}
    assert error[0] == "error"
    assert error[1]["error"] == responses.error(refused)["error"]
    assert (error[1]["code"], error[1]["message"]) == ("context_length_exceeded", "no room")
