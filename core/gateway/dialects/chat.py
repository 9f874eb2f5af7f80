"""Implements `Dialect` for OpenAI's chat completions."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from grpo.core.gateway.conversation import Ask, ChatTurn, Finish, Refused, Reply, ToolUse
from grpo.core.gateway.dialects.fields import (
    MOST_ANSWERS,
    Body,
    arguments_of,
    content_in,
    event,
    flag,
    ignored_in,
    in_order_of_calls,
    malformed,
    object_in,
    objects_in,
    stops_in,
    text_in,
    thread_of,
    tools_in,
    whole_number,
)
from grpo.core.text.printable import one_line

LIMITS = ("max_completion_tokens", "max_tokens")
READ = {*LIMITS, "messages", "model", "n", "stop", "stream", "stream_options", "tools"}
ENDS: Mapping[Finish, str] = {"stop": "stop", "length": "length", "calls": "tool_calls"}
TEXTS = ("text", "refusal")
THOUGHTS = ("thinking", "reasoning")


def read(body: Body, headers: Mapping[str, str]) -> Ask:
    if body.get("functions"):
        raise malformed("The request has 'functions', the old form of tools", "Send them as 'tools'")
    tools, others = tools_in(body, "function", "parameters", inside="function")
    options = body.get("stream_options")
    return Ask(
        messages=in_order_of_calls(
            _turn(message, f"messages[{index}]")
            for index, message in enumerate(objects_in(body.get("messages"), "messages"))
        ),
        tools=tools,
        model=text_in(body.get("model"), "model"),
        max_tokens=whole_number(body, LIMITS),
        stop=stops_in(body.get("stop"), "stop"),
        count=whole_number(body, ("n",), MOST_ANSWERS) or 1,
        stream=flag(body, "stream"),
        usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        thread=thread_of(headers),
        ignored=ignored_in(body, READ, others),
    )


def _turn(message: Body, where: str) -> ChatTurn:
    role, content = message.get("role"), message.get("content")
    match role:
        case "system" | "developer" | "user":
            return ChatTurn("user" if role == "user" else "system", content_in(content, f"{where}.content", TEXTS))
        case "assistant":
            text = content_in(content, f"{where}.content", TEXTS, skipped=THOUGHTS, separator="")
            calls = objects_in(message.get("tool_calls"), f"{where}.tool_calls")
            return ChatTurn(
                "assistant",
                text.strip(),
                tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)),
            )
        case "tool":
            answers = text_in(message.get("tool_call_id"), f"{where}.tool_call_id")
            return ChatTurn("tool", content_in(content, f"{where}.content", TEXTS), answers=answers)
    raise malformed(f"{where}.role is {one_line(repr(role))}", "Send system, developer, user, assistant or tool")


def _call(call: Body, where: str) -> ToolUse:
    function = object_in(call.get("function"), f"{where}.function")
    return ToolUse(
        text_in(function.get("name"), f"{where}.function.name"),
        arguments_of(function.get("arguments")),
        text_in(call.get("id"), f"{where}.id"),
    )


def whole(ask: Ask, replies: Sequence[Reply]) -> Body:
    return {
        **_head(ask, "chat.completion"),
        "choices": [
            {"index": index, "message": _message(reply), "finish_reason": ENDS[reply.finish], "logprobs": None}
            for index, reply in enumerate(replies)
        ],
        "usage": _usage(replies),
    }


def _head(ask: Ask, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": ask.model,
    }


def _message(reply: Reply) -> dict[str, Any]:
    turn = reply.turn
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "refusal": None}
    if turn.calls:
        message["content"] = turn.text or None
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in turn.calls
        ]
    return message


def _usage(replies: Sequence[Reply]) -> dict[str, Any]:
    read, written = replies[0].prompt_tokens, sum(reply.sampled_tokens for reply in replies)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def events(ask: Ask, replies: Sequence[Reply]) -> bytes:
    head = _head(ask, "chat.completion.chunk") | ({"usage": None} if ask.usage else {})

    def chunk(index: int, delta: Body, finish: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**head, "choices": [choice]})

    chunks: list[bytes] = []
    for index, reply in enumerate(replies):
        message = _message(reply)
        calls = message.pop("tool_calls", ())
        chunks.append(chunk(index, message))
        chunks += [chunk(index, {"tool_calls": [{"index": place, **call}]}) for place, call in enumerate(calls)]
        chunks.append(chunk(index, {}, ENDS[reply.finish]))
    if ask.usage:
        chunks.append(event({**head, "choices": [], "usage": _usage(replies)}))
    return b"".join([*chunks, event("[DONE]")])


def error(refused: Refused) -> Body:
    return {
        "error": {"message": str(refused), "type": "invalid_request_error", "param": None, "code": refused.code},
    }


def error_events(refused: Refused) -> bytes:
    return event(error(refused))
