"""Describes an environment's typed functions (its attribute `tools`) as tool schemas and calls them.

What a tool raises is an answer too, since the policy may have asked for something impossible; not so a `GrpoError`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo.core.text.printable import encodable, shortened
from grpo.plugins.errors import GrpoError, PluginError, did_you_mean

Schema = Mapping[str, Any]
LONGEST_ERROR = 500  # characters of an error that the policy is told


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the policy asked for; neither the name nor the arguments need be any that exist."""

    name: str  # of the tool; "" where the call names none
    arguments: Mapping[str, Any]  # by name
    problem: str | None = None  # why the call cannot be made, for the policy; None where it can be tried


def checked(call: ToolCall, schemas: Sequence[Schema]) -> ToolCall:
    """Returns a call, with the problem that an argument is a text where its tool takes none."""
    described: Mapping[str, Any] = next(
        (schema["function"] for schema in schemas if schema["function"]["name"] == call.name), {}
    )
    parameters = described.get("parameters", {}).get("properties", {})
    for name, value in call.arguments.items():
        types = _types(parameters.get(name))
        if isinstance(value, str) and types and "string" not in types:
            return replace(call, problem=f"the argument '{name}' has to be of type {' or '.join(types)}, not a text")
    return call


def _types(schema: Any) -> list[str]:
    if not isinstance(schema, Mapping):
        return []
    choices = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
    if any(not _types(choice) for choice in choices):
        return []
    own = schema.get("type") or []
    return [*([own] if isinstance(own, str) else own), *(kind for choice in choices for kind in _types(choice))]


def functions_of(env: Any) -> dict[str, Callable[..., Any]]:
    """Returns the tools that an environment offers, by name. Raises TypeError or ValueError."""
    offered = tuple(getattr(getattr(env, "unwrapped", env), "tools", None) or ())
    tools: dict[str, Callable[..., Any]] = {}
    for function in offered:
        name = getattr(function, "__name__", None)
        if not callable(function) or not isinstance(name, str):
            raise TypeError(f"its attribute 'tools' holds {function!r}, which is not a function with a name")
        if name in tools:
            raise ValueError(f"two of its tools are named '{name}'")
        tools[name] = function
    return tools


def schemas_of(env: Any, name: str) -> tuple[Schema, ...]:
    """Describes the tools of an environment in JSON schema, as chat templates take them. Raises PluginError."""
    try:
        functions = functions_of(env)
    except (TypeError, ValueError) as error:
        raise PluginError(f"env '{name}': {error}. Make 'tools' a list of functions.") from error
    if not functions:
        return ()
    from transformers.utils import get_json_schema

    schemas: list[Schema] = []
    for tool, function in functions.items():
        try:
            schemas.append(getattr(function, "json_schema", None) or get_json_schema(function))
        except Exception as error:  # of several kinds, and of any where an annotation cannot be evaluated
            raise PluginError(
                f"env '{name}': its tool '{tool}' cannot be described to the policy: {error} Annotate every parameter "
                "and describe each in a docstring with a section 'Args:'."
            ) from error
    return tuple(schemas)


def answer(functions: Mapping[str, Callable[..., Any]], call: ToolCall) -> str:
    """Makes a call and returns the policy's observation; GrpoError where the machine is at fault, not the call."""
    if call.problem is not None:
        return error_answer(call.problem)
    function = functions.get(call.name)
    if function is None:
        have = ", ".join(functions)
        return error_answer(f"there is no tool '{call.name}'; there is: {have}.{did_you_mean(call.name, functions)}")
    try:
        result = function(**call.arguments)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return encodable(result if isinstance(result, str) else json.dumps(result, default=str, ensure_ascii=False))
    except GrpoError:
        raise
    except Exception as error:
        return error_answer(f"{type(error).__name__}: {error}")


def used(env: Any, text: str, calls: Sequence[ToolCall], answers: Sequence[str]) -> bool:
    """Tells an environment of a turn that asked for calls, and returns whether its episode has ended with them."""
    tell = getattr(getattr(env, "unwrapped", env), "tools_used", None)
    return bool(tell([calling(text, calls), *answering(calls, answers)])) if callable(tell) else False


def calling(text: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Returns the chat message of a turn that asks for calls."""
    asked = [{"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}} for c in calls]
    return {"role": "assistant", "content": text, "tool_calls": asked}


def answering(calls: Sequence[ToolCall], answers: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the chat messages that answer calls."""
    return [{"role": "tool", "name": call.name, "content": result} for call, result in zip(calls, answers, strict=True)]


def error_answer(reason: str) -> str:
    """Returns an error as an observation of the policy: an object with the key `error`, as TRL writes it."""
    return json.dumps({"error": encodable(shortened(reason, LONGEST_ERROR))}, ensure_ascii=False)


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result
