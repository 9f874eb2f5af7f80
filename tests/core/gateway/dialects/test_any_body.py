"""Any body is read or refused in words, whatever stands in the place of a field."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from grpo.core.gateway.conversation import Dialect, Refused
from grpo.core.gateway.dialects import chat, messages, responses
from grpo.core.gateway.dialects.fields import body_of

FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
BODIES: list[tuple[Dialect, dict[str, Any]]] = [
    (
        chat,
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a"}]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "x"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
            "stop": ["a"],
            "n": 2,
            "tool_choice": "auto",
        },
    ),
    (
        responses,
        {
            "instructions": "i",
            "input": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
                {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
                {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}]},
            ],
            "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": {"type": "x"},
        },
    ),
    (
        messages,
        {
            "system": [{"type": "text", "text": "x"}],
            "messages": [
                {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "tool_use", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "x"}]}]},
            ],
            "tools": [{"name": "f", "input_schema": {}}],
            "max_tokens": 3,
        },
    ),
]
VALUES: list[Any] = [None, "", 0, -1, 1.5, 1e308, 10**40, True, [], {}, "x", ["x"], [[]], [None], {"type": ["text"]}]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Returns all places below a value: what holds each, and its key or index."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [place for key, inner in items for place in [(value, key), *places(inner)]]


@pytest.mark.parametrize(("dialect", "body"), BODIES)
def test_a_body_with_strange_fields_is_read_or_refused(dialect: Dialect, body: dict[str, Any]) -> None:
    dice = random.Random(0)
    refusals: list[Refused] = []
    for _ in range(2000):
        strange = copy.deepcopy(body)
        for _ in range(dice.randint(1, 4)):
            holder, key = dice.choice(places(strange))
            if dice.random() < 0.1:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(dice.choice(VALUES))
            if not places(strange):
                break
        try:
            ask = dialect.read(body_of(json.dumps(strange).encode()), {})
        except Refused as refused:
            refusals.append(refused)
        else:
            assert all(isinstance(turn.text, str) and isinstance(turn.answers, str) for turn in ask.messages)
            assert all(isinstance(call.arguments, dict) for turn in ask.messages for call in turn.calls)
    assert {refused.status for refused in refusals} == {400}
    assert max(len(str(refused)) for refused in refusals) < 400
