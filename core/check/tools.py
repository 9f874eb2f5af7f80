"""Checks the tools of an environment with hostile calls and calls from worked examples."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo.core.env.tools import Schema, ToolCall, answer, functions_of, schemas_of
from grpo.core.scoring.outcome import explain
from grpo.plugins._spec.binding import BoundEnv

SLOW = 20.0  # seconds for one call; a sandbox that starts is no fault
_HOSTILE = ("", "\x00", "\ud800", "{" * 2000, "7" * 1_000_000, "while True: pass", "raise SystemExit(3)")


def tool_faults(
    bound: BoundEnv, start: Mapping[str, Any], worked: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """Calls the tools of an environment and yields what does not hold: the relation, a sentence, the call."""
    env = bound.make()
    try:
        env.reset(**start)
        schemas = schemas_of(env, bound.name)
        if schemas and bound.spec.max_turns == 1:
            yield "tools", "it offers tools, and max_turns is 1: a call and its answer take a turn each", ""
        for call in _hostile_calls(schemas):
            yield from _fault(env, call)
    finally:
        env.close()
    for used in worked:
        first, second = (_told(bound, start, ToolCall(used["tool"], used["arguments"])) for _ in range(2))
        if first != second:
            yield "tools answer alike", "two instances answer the same call differently", str(dict(used))[:60]


def _fault(env: Any, call: ToolCall) -> Iterator[tuple[str, str, str]]:
    shown = f"{call.name}({str(dict(call.arguments))[:40]})"
    began = time.monotonic()
    try:
        answer(functions_of(env), call)
    except BaseException as error:  # also a tool that lets a program call exit()
        yield "tools", f"a call raised {explain(error)}", shown
    if time.monotonic() - began > SLOW:
        yield "tools", f"a call took more than {SLOW:g} seconds", shown


def _told(bound: BoundEnv, start: Mapping[str, Any], call: ToolCall) -> str:
    env = bound.make()
    try:
        env.reset(**start)
        return answer(functions_of(env), call)
    finally:
        env.close()


def _hostile_calls(schemas: Sequence[Schema]) -> Iterator[ToolCall]:
    """Yields calls without arguments, with unknown ones, and with hostile texts in the place of each."""
    for schema in schemas:
        function = schema["function"]
        names = list(function["parameters"]["properties"])
        yield ToolCall(function["name"], {})
        yield ToolCall(function["name"], {"no_such_parameter": 1})
        for hostile in _HOSTILE if names else ():
            yield ToolCall(function["name"], dict.fromkeys(names, hostile))
