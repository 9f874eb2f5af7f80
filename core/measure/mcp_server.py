"""Offers a served environment as an MCP server over standard input and output.

Beside the environment's own tools there are `reset`, which begins a task, and `submit`, which answers it or makes a
move. One process serves one client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpo
from grpo.core.env.tools import Schema
from grpo.core.measure.served_env import Answer, ServedEnv
from grpo.plugins.errors import UsageError

_INTEGER = {"type": "integer", "minimum": 0, "description": "the number of the task; default: the next one"}
_OWN: dict[str, dict[str, Any]] = {
    "reset": {
        "description": "Begins a task and returns it. A task that is open is given up.",
        "parameters": {"type": "object", "properties": {"index": _INTEGER}},
    },
    "submit": {
        "description": "Submits an answer or a move for the open task. Returns what follows, and the score at the end.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "the answer or the move"}},
            "required": ["text"],
        },
    },
}


def refuse_clashes(schemas: Sequence[Schema], env: str) -> None:
    """Refuses an environment with a tool that has one of our names. Raises UsageError."""
    for schema in schemas:
        if schema["function"]["name"] in _OWN:
            raise UsageError(
                f"env '{env}' has a tool named '{schema['function']['name']}', as the server has one of its own. "
                "Rename the environment's."
            )


async def serve(env: ServedEnv, name: str) -> None:
    """Serves an environment until standard input ends."""
    import asyncio

    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    one_at_a_time = asyncio.Lock()
    functions = [schema["function"] for schema in env.schemas]
    tools = [
        Tool(name=each["name"], description=each["description"], input_schema=each["parameters"])
        for each in (*({"name": own, **rest} for own, rest in _OWN.items()), *functions)
    ]

    async def listed(context: Any, params: Any) -> Any:
        return ListToolsResult(tools=tools)

    async def called(context: Any, params: Any) -> Any:
        async with one_at_a_time:
            answer = await asyncio.to_thread(_answer, env, params.name, dict(params.arguments or {}))
        content = [TextContent(type="text", text=answer.text)]
        return CallToolResult(
            content=content, is_error=answer.error, structured_content=dict(answer.data) if answer.data else None
        )

    server = Server(f"grpo {name}", version=grpo.__version__, on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _answer(env: ServedEnv, name: str, arguments: dict[str, Any]) -> Answer:
    if name == "reset":
        index = arguments.get("index")
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            return Answer("index must be a whole number", error=True)
        return env.reset(index)
    if name == "submit":
        text = arguments.get("text")
        return env.submit(text) if isinstance(text, str) else Answer("text must be a text", error=True)
    if name not in [schema["function"]["name"] for schema in env.schemas]:
        return Answer(f"there is no tool '{name}'", error=True)
    return env.call(name, arguments)
