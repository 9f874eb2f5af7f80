"""Messages: requests as programs send them, and what is written back."""

from __future__ import annotations

from typing import Any

import pytest
from reply_samples import REPLIES, events_of
from scripted_desk import said

from grpo.core.gateway.conversation import Ask, ChatTurn, Refused, Reply, ToolUse
from grpo.core.gateway.dialects import messages
from grpo.core.gateway.dialects.fields import UNREADABLE

USER: dict[str, Any] = {"role": "user", "content": "hi"}
CACHED = {"cache_control": {"type": "ephemeral"}}


def read(*turns: Any, **fields: Any) -> Ask:
    return messages.read({"model": "m", "max_tokens": 9, "messages": [*turns], **fields}, {})


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def call(id: str, input: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": input, **more}


def result(id: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def claude_code(turns: int, billing: str = "cc_version=1;") -> dict[str, Any]:
    """Returns a request of Claude Code: marks for caches are on the last message, results as tools ended."""
    history: list[dict[str, Any]] = [
        {"role": "user", "content": [text("<system-reminder>\n\n"), text("go")]},
        {"role": "assistant", "content": [text("Let me look."), call("1", {"c": "ls"}), call("2", {"c": "pwd"})]},
        {"role": "user", "content": [result("2", "/"), result("1", "a", is_error=False)]},
        {"role": "assistant", "content": [call("3", {"c": "false"})]},
        {"role": "user", "content": [result("3", "Exit code 1", is_error=True), text("Go on.")]},
    ][:turns]
    history[-1] = {**history[-1], "content": [*history[-1]["content"][:-1], {**history[-1]["content"][-1], **CACHED}]}
    return {
        "model": "m",
        "system": [text(f"x-anthropic-billing-header: {billing}"), text("You code.", **CACHED), text("Be brief.")],
        "messages": history,
        "tools": [{"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}, **CACHED}],
        "metadata": {"user_id": "u"},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "stream": True,
    }


def test_a_conversation_of_claude_code() -> None:
    ask = messages.read(claude_code(5), {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"})
    assert ask == Ask(
        messages=(
            ChatTurn("system", "You code.\nBe brief."),
            ChatTurn("user", "<system-reminder>\n\n\ngo"),
            ChatTurn("assistant", "Let me look.", (ToolUse("Bash", {"c": "ls"}), ToolUse("Bash", {"c": "pwd"}))),
            ChatTurn("tool", "a"),
            ChatTurn("tool", "/"),
            ChatTurn("assistant", "", (ToolUse("Bash", {"c": "false"}),)),
            ChatTurn("tool", "Error: Exit code 1"),
            ChatTurn("user", "Go on."),
        ),
        tools=(
            {
                "type": "function",
                "function": {"name": "Bash", "description": "Runs.", "parameters": {"type": "object"}},
            },
        ),
        model="m",
        max_tokens=32000,
        stream=True,
        thread="claude-code s a",
        ignored=("metadata", "thinking"),
    )


def test_a_later_request_extends_an_earlier_one_though_marks_and_billing_change() -> None:
    earlier, later = messages.read(claude_code(3), {}), messages.read(claude_code(5, "cc_version=2;"), {})
    assert later.messages[: len(earlier.messages)] == earlier.messages


def test_a_system_message_is_a_text_or_in_blocks_or_in_the_middle() -> None:
    assert read(USER, system="a").messages[0] == ChatTurn("system", "a")
    assert read(USER, system=[text("a"), text("b")]).messages[0] == ChatTurn("system", "a\nb")
    assert read(USER, system="").messages == read(USER, system=None).messages == read(USER).messages
    middle = read(USER, {"role": "system", "content": [text("c")]}, USER)
    assert [turn.role for turn in middle.messages] == ["user", "system", "user"]


def test_results_come_before_the_text_beside_them() -> None:
    asked = read(
        USER,
        {"role": "assistant", "content": [call("1", {}), call("2", {})]},
        {"role": "user", "content": [text("x"), result("1", [text("a"), text("b")]), result("2"), text("y")]},
    )
    assert asked.messages[2:] == (ChatTurn("tool", "a\nb"), ChatTurn("tool", ""), ChatTurn("user", "x\ny"))


def test_results_in_several_messages_come_in_the_order_of_the_calls() -> None:
    asked = read(
        USER,
        {"role": "assistant", "content": [call("1", {}), call("2", {})]},
        {"role": "user", "content": [result("2", "b")]},
        {"role": "user", "content": [result("1", "a")]},
    )
    assert [turn.text for turn in asked.messages[2:]] == ["a", "b"]


def test_an_error_is_said_once() -> None:
    results = [result("1", value, is_error=True) for value in ("no such file", "<tool_use_error>x", "Error: y", None)]
    asked = read(USER, {"role": "user", "content": results})
    assert [turn.text for turn in asked.messages[1:]] == [
        "Error: no such file",
        "<tool_use_error>x",
        "Error: y",
        "Error: ",
    ]


def test_thoughts_are_left_out_and_empty_messages_stay() -> None:
    thought = [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "redacted_thinking", "data": "x"}]
    asked = read(
        USER,
        {"role": "assistant", "content": [*thought, text(" a"), text("b ")]},
        {"role": "user", "content": []},
        {"role": "assistant", "content": []},
        USER,
    )
    assert [turn.text for turn in asked.messages[1:]] == ["ab", "", "", "hi"]


def test_input_that_is_no_object_is_kept() -> None:
    asked = read(USER, {"role": "assistant", "content": [call("1", "ls"), call("2", None)]}, USER)
    assert [use.arguments for use in asked.messages[1].calls] == [{UNREADABLE: "ls"}, {}]


def test_tools_of_the_server_are_left_out() -> None:
    tools = [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "custom", "name": "f", "input_schema": {"a": 1}},
        {"type": None, "name": "g"},
    ]
    asked = read(USER, tools=tools, tool_choice={"type": "any"}, top_k=3)
    assert [tool["function"]["name"] for tool in asked.tools] == ["f", "g"]
    assert asked.ignored == ("tool_choice=any", "tools.web_search_20250305", "top_k")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"messages": []}, "The request has no message"),
        ({"messages": [{"role": "robot"}]}, r"messages\[0\].role is 'robot'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "of type 'image', and the policy",
        ),
        ({"messages": [{"role": "user", "content": [result("1", [{"type": "image"}])]}]}, "of type 'image', and the"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "of type 'tool_use'"),
        ({"messages": [{"role": "assistant", "content": [result("1")]}]}, "of type 'tool_result'"),
        ({"messages": [USER, {"role": "assistant", "content": "{"}]}, "the policy continues no message"),
        ({"system": [{"type": "image"}]}, r"system\[0\] is of type 'image'"),
        ({"system": 1}, "system is a number"),
        ({"tools": [{"input_schema": {}}]}, r"tools\[0\] has no name"),
        ({"stop_sequences": "x", "max_tokens": -1}, "max_tokens is -1"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem) as refused:
        messages.read({"messages": [USER], **fields}, {})
    assert refused.value.status == 400


def wrote(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_that_comes_back_is_the_same_turn(reply: Reply) -> None:
    content = messages.whole(Ask(()), [reply])["content"]
    assert read(USER, wrote(content), USER).messages == (ChatTurn("user", "hi"), reply.turn, ChatTurn("user", "hi"))


@pytest.mark.parametrize("reply", REPLIES)
def test_events_come_in_the_order_of_the_api(reply: Reply) -> None:
    events = events_of(messages.events(Ask((), model="m"), [reply]))
    assert all(name == data["type"] for name, data in events)
    content = messages.whole(Ask(()), [reply])["content"]
    blocks = ["content_block_start", "content_block_delta", "content_block_stop"] * len(content)
    assert [name for name, _ in events] == ["message_start", *blocks, "message_delta", "message_stop"]
    assert [data["index"] for _, data in events[1:-2]] == [index for index in range(len(content)) for _ in range(3)]
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    starts = [data["content_block"] for name, data in events if name == "content_block_start"]
    assert [start.get("text", start.get("input")) for start in starts] == [
        "" if block["type"] == "text" else {} for block in content
    ]
    joined = [
        {**start, "text": delta["text"]} if "text" in delta else {**start, "input": delta["partial_json"]}
        for start, delta in zip(starts, deltas, strict=True)
    ]
    assert read(USER, wrote(joined), USER).messages[1] == reply.turn
    assert events[-2][1]["usage"] == {"input_tokens": 5, "output_tokens": 7}


def test_ends() -> None:
    replies = [said("a"), said("a", finish="length"), said("", ToolUse("f", {}, "id-1")), said("a", stopped_by="X")]
    ends = [messages.whole(Ask(()), [reply]) for reply in replies]
    assert [end["stop_reason"] for end in ends] == ["end_turn", "max_tokens", "tool_use", "stop_sequence"]
    assert [end["stop_sequence"] for end in ends] == [None, None, None, "X"]
    assert ends[2]["content"] == [{"type": "tool_use", "id": "id-1", "name": "f", "input": {}}]


def test_errors_have_the_kind_of_their_status() -> None:
    kinds = [messages.error(Refused(status, "x"))["error"]["type"] for status in (400, 401, 404, 413, 500)]
    assert kinds == [
        "invalid_request_error",
        "authentication_error",
        "not_found_error",
        "request_too_large",
        "api_error",
    ]
    error = messages.error(Refused(400, "9 tokens of 8", "context_length_exceeded"))
    assert error["error"]["message"] == "prompt is too long: 9 tokens of 8"
    assert events_of(messages.error_events(Refused(400, "x"))) == [("error", messages.error(Refused(400, "x")))]
