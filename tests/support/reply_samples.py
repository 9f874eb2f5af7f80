"""Replies that are hard to write and to read again, and what a stream of events says."""

from __future__ import annotations

import json
from typing import Any

from scripted_desk import said

from grpo.core.gateway.conversation import ToolUse

NESTED = {"z": [1, 2.5, None, {"b": True, "a": "é\n\u2028\U0001f600"}], "a": {}, "text": '{"not": "parsed"}', "": ""}
REPLIES = [
    said("yes"),
    said(""),
    said("naïve\n\n  data: x\r\n\u2028 \U0001f600 </s> \\u00e9"),
    said("cut", finish="length"),
    said("ended", stopped_by="STOP"),
    said("", ToolUse("bash", {"command": "ls -l | wc\n"})),
    said("Let me look.", ToolUse("bash", NESTED)),
    said("", ToolUse("a", {}), ToolUse("a", {}), ToolUse("b", NESTED)),
    said("three", ToolUse("a", {"x": 1}, "1"), ToolUse("b", {"x": "1"}, "2"), ToolUse("c", {"x": [1]}, "3")),
]


def events_of(stream: bytes) -> list[tuple[str, Any]]:
    """Returns the names and the data of server-sent events."""
    events: list[tuple[str, Any]] = []
    for block in stream.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            data = fields["data"]
            events.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return events
