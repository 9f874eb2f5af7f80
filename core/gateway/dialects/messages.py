"""Implements `Dialect` for Anthropic's messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from grpo.core.gateway.conversation import Ask, ChatTurn, Finish, Refused, Reply, ToolUse
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
    stops_in,
    text_in,
    thread_of,
    tools_in,
    whole_number,
)
from grpo.core.text.printable import one_line

LIMITS = ("max_tokens",)
READ = {*LIMITS, "messages", "model", "stop_sequences", "stream", "system", "tools"}
THOUGHTS = ("thinking", "redacted_thinking")
ENDS: Mapping[Finish, str] = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}
KINDS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 500: "api_error"}
BILLING = "x-anthropic-billing-header:"  # begins a block of Claude Code's that is for the server, and no prompt


def read(body: Body, headers: Mapping[str, str]) -> Ask:
    tools, others = tools_in(body, "custom", "input_schema")
    system = _system(body.get("system"))
    turns = [ChatTurn("system", system)] if system else []
    for index, message in enumerate(objects_in(body.get("messages"), "messages")):
        turns += _turns(message, f"messages[{index}]")
    if turns and turns[-1].role == "assistant":
        raise malformed(
            "The last message is the assistant's, and the policy continues no message", "End with the user's"
        )
    return Ask(
        messages=in_order_of_calls(turns),
        tools=tools,
        model=text_in(body.get("model"), "model"),
        max_tokens=whole_number(body, LIMITS),
        stop=stops_in(body.get("stop_sequences"), "stop_sequences"),
        stream=flag(body, "stream"),
        thread=thread_of(headers),
        ignored=ignored_in(body, READ, others),
    )


def _system(content: Any, where: str = "system") -> str:
    if isinstance(content, list):
        content = [part for part in content if not _is_billing(part)]
    return content_in(content, where, ("text",))


def _is_billing(part: Any) -> bool:
    return isinstance(part, Mapping) and str(part.get("text")).startswith(BILLING)


def _turns(message: Body, where: str) -> list[ChatTurn]:
    """Reads a message: of a user's, the results of tools come first, each as a message of its own."""
    role, content = message.get("role"), message.get("content")
    where = f"{where}.content"
    match role:
        case "system":
            return [ChatTurn("system", _system(content, where))]
        case "assistant":
            text = content_in(content, where, ("text",), skipped=(*THOUGHTS, "tool_use"), separator="")
            return [ChatTurn("assistant", text.strip(), _calls(content, where))]
        case "user":
            text = content_in(content, where, ("text",), skipped=("tool_result",))
            results = _results(content, where)
            return [*results, *([ChatTurn("user", text)] if text or not results else [])]
    raise malformed(
        f"{where.removesuffix('.content')}.role is {one_line(repr(role))}", "Send system, user or assistant"
    )


def _calls(content: Any, where: str) -> tuple[ToolUse, ...]:
    parts = enumerate(content if isinstance(content, list) else ())
    return tuple(
        ToolUse(
            text_in(part.get("name"), f"{where}[{index}].name"),
            arguments_of(part.get("input")),
            text_in(part.get("id"), f"{where}[{index}].id"),
        )
        for index, part in parts
        if part["type"] == "tool_use"
    )


def _results(content: Any, where: str) -> list[ChatTurn]:
    turns: list[ChatTurn] = []
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if part["type"] == "tool_result":
            name = f"{where}[{index}]"
            text = content_in(part.get("content"), f"{name}.content", ("text",))
            if flag(part, "is_error") and "error" not in text[:40].lower():
                text = f"Error: {text}"
            turns.append(ChatTurn("tool", text, answers=text_in(part.get("tool_use_id"), f"{name}.tool_use_id")))
    return turns


def whole(ask: Ask, replies: Sequence[Reply]) -> Body:
    reply = replies[0]
    return {
        **_head(ask),
        "content": _blocks(reply),
        **_end(reply),
        "usage": _usage(reply),
    }


def _usage(reply: Reply) -> dict[str, int]:
    return {"input_tokens": reply.prompt_tokens, "output_tokens": reply.sampled_tokens}


def _head(ask: Ask) -> dict[str, Any]:
    return {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": ask.model}


def _end(reply: Reply) -> dict[str, Any]:
    reason = ENDS[reply.finish]
    if reply.stopped_by is not None and reply.finish == "stop":
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": reply.stopped_by}


def _blocks(reply: Reply) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": reply.turn.text}] if reply.turn.text or not reply.turn.calls else []
    calls = [
        {
            "type": "tool_use",
            "id": call.id or f"toolu_{secrets.token_hex(12)}",
            "name": call.name,
            "input": call.arguments,
        }
        for call in reply.turn.calls
    ]
    return [*text, *calls]


def events(ask: Ask, replies: Sequence[Reply]) -> bytes:
    reply = replies[0]
    begun = {
        **_head(ask),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_usage(reply), "output_tokens": 0},
    }
    steps: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(_blocks(reply)):
        if block["type"] == "text":
            empty: Body = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}
        steps += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    steps += [{"type": "message_delta", "delta": _end(reply), "usage": _usage(reply)}, {"type": "message_stop"}]
    return b"".join(event(step, step["type"]) for step in steps)


def counted(tokens: int) -> Body:
    return {"input_tokens": tokens}


def error(refused: Refused) -> Body:
    """Returns the JSON of an error; Claude Code compacts its conversation when it reads that a prompt is too long."""
    message = str(refused)
    if refused.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"
    return {"type": "error", "error": {"type": KINDS.get(refused.status, "invalid_request_error"), "message": message}}


def error_events(refused: Refused) -> bytes:
    return event(error(refused), "error")
