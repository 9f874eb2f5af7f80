"""Implements `Dialect` for OpenAI's responses."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grpo.core.gateway.conversation import Ask, ChatTurn, Refused, Reply, ToolUse
from grpo.core.gateway.dialects import chat
from grpo.core.gateway.dialects.fields import (
    Body,
    arguments_of,
    content_in,
    event,
    flag,
    ignored_in,
    in_order_of_calls,
    malformed,
    objects_in,
    text_in,
    thread_of,
    tools_in,
    whole_number,
)
from grpo.core.text.printable import one_line

LIMITS = ("max_output_tokens",)
READ = {*LIMITS, "input", "instructions", "model", "stream", "tools"}
STORED = ("previous_response_id", "conversation", "prompt")  # what a server that keeps conversations would look up
TEXTS = ("input_text", "output_text", "text", "refusal")
DROPPED = ("reasoning",)
error = chat.error  # both APIs have one form of errors


def read(body: Body, headers: Mapping[str, str]) -> Ask:
    for name in STORED:
        if body.get(name):
            raise malformed(
                f"The request has '{name}', but nothing is stored here", "Send the whole conversation as 'input'"
            )
    if flag(body, "background"):
        raise malformed(
            "The request is to be answered in the background, but nothing is stored here", "Leave out 'background'"
        )
    tools, others = tools_in(body, "function", "parameters")
    instructions = content_in(body.get("instructions"), "instructions", TEXTS)
    return Ask(
        messages=in_order_of_calls(
            [*([ChatTurn("system", instructions)] if instructions else []), *_turns(body.get("input"))]
        ),
        tools=tools,
        model=text_in(body.get("model"), "model"),
        max_tokens=whole_number(body, LIMITS),
        stream=flag(body, "stream"),
        thread=thread_of(headers),
        ignored=ignored_in(body, READ, others),
    )


def _turns(value: Any) -> list[ChatTurn]:
    """Reads the items of a conversation; a message and the calls after it are one turn of the assistant."""
    if isinstance(value, str):
        return [ChatTurn("user", value)]
    turns: list[tuple[ChatTurn, list[ToolUse]]] = []
    for index, item in enumerate(objects_in(value, "input")):
        where = f"input[{index}]"
        match item.get("type") or "message":
            case "message":
                turns.append((_message_turn(item, where), []))
            case "function_call":
                if not turns or turns[-1][0].role != "assistant":
                    turns.append((ChatTurn("assistant", ""), []))
                turns[-1][1].append(_call(item, where))
            case "function_call_output":
                text = content_in(item.get("output"), f"{where}.output", TEXTS)
                answers = text_in(item.get("call_id"), f"{where}.call_id")
                turns.append((ChatTurn("tool", text, answers=answers), []))
            case "item_reference":
                raise malformed(f"{where} refers to a stored item, but nothing is stored here", "Send the item itself")
            case kind if kind not in DROPPED:
                raise malformed(
                    f"{where} is of type {one_line(repr(kind))}, which the policy cannot read",
                    "Send messages, function calls and their outputs",
                )
    return [replace(turn, calls=tuple(calls)) for turn, calls in turns]


def _message_turn(item: Body, where: str) -> ChatTurn:
    role, content = item.get("role"), item.get("content")
    match role:
        case "system" | "developer" | "user":
            return ChatTurn("user" if role == "user" else "system", content_in(content, f"{where}.content", TEXTS))
        case "assistant":
            return ChatTurn("assistant", content_in(content, f"{where}.content", TEXTS, separator="").strip())
    raise malformed(f"{where}.role is {one_line(repr(role))}", "Send system, developer, user or assistant")


def _call(item: Body, where: str) -> ToolUse:
    return ToolUse(
        text_in(item.get("name"), f"{where}.name"),
        arguments_of(item.get("arguments")),
        text_in(item.get("call_id"), f"{where}.call_id"),
    )


def whole(ask: Ask, replies: Sequence[Reply]) -> Body:
    reply = replies[0]
    return _response(ask, _items(reply), reply)


def _response(ask: Ask, output: Sequence[Body], reply: Reply | None) -> dict[str, Any]:
    cut = reply is not None and reply.finish == "length"
    return {
        "id": f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress" if reply is None else "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "max_output_tokens": ask.max_tokens,
        "metadata": {},
        "model": ask.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [{"strict": False, "type": "function", **tool["function"]} for tool in ask.tools],
        "top_p": None,
        "truncation": "disabled",
        "usage": None if reply is None else _usage(reply),
    }


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.sampled_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
    }


def _items(reply: Reply) -> list[dict[str, Any]]:
    """Returns the items of an answer; one without text and calls has an empty message, else its turn would be lost."""
    turn = reply.turn
    status = "incomplete" if reply.finish == "length" else "completed"
    items: list[dict[str, Any]] = []
    if turn.text or not turn.calls:
        part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        items.append({"type": "message", "role": "assistant", "content": [part]})
    items += [
        {
            "type": "function_call",
            "call_id": call.id or f"call_{secrets.token_hex(12)}",
            "name": call.name,
            "arguments": json.dumps(call.arguments, ensure_ascii=False),
        }
        for call in turn.calls
    ]
    prefixes = {"message": "msg", "function_call": "fc"}
    return [{"id": f"{prefixes[item['type']]}_{secrets.token_hex(12)}", "status": status, **item} for item in items]


def events(ask: Ask, replies: Sequence[Reply]) -> bytes:
    reply = replies[0]
    items = _items(reply)
    final = _response(ask, items, reply)
    begun = {**_response(ask, [], None), "id": final["id"], "created_at": final["created_at"]}
    steps: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(items):
        steps += [{"output_index": index, **step} for step in _item_steps(item)]
    steps.append({"type": f"response.{final['status']}", "response": final})
    return _numbered(steps)


def _item_steps(item: Body) -> list[dict[str, Any]]:
    place = {"item_id": item["id"]}
    if item["type"] == "message":
        part = item["content"][0]
        place["content_index"] = 0
        empty: dict[str, Any] = {**item, "status": "in_progress", "content": []}
        steps = [
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": part["text"], "logprobs": []},
            {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    else:
        arguments = item["arguments"]
        empty = {**item, "status": "in_progress", "arguments": ""}
        steps = [
            {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
            {"type": "response.function_call_arguments.done", **place, "arguments": arguments, "name": item["name"]},
        ]
    return [
        {"type": "response.output_item.added", "item": empty},
        *steps,
        {"type": "response.output_item.done", "item": item},
    ]


def _numbered(steps: Sequence[Body]) -> bytes:
    return b"".join(event({**step, "sequence_number": number}, step["type"]) for number, step in enumerate(steps))


def error_events(refused: Refused) -> bytes:
    """Returns a failed response and an error, as programs look for either; Codex repeats unless it knows the code."""
    code = refused.code if refused.code == "context_length_exceeded" else "invalid_prompt"
    failed = {
        **_response(Ask(()), [], None),
        "status": "failed",
        "error": {"code": code, "message": str(refused)},
    }
    detail = {"code": refused.code, "message": str(refused), "param": None}
    return _numbered([{"type": "response.failed", "response": failed}, {"type": "error", **detail, **error(refused)}])
