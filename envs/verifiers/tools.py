"""Offers the toolsets of a verifiers task as functions that the policy may call, in this process.

Each is registered with verifiers' own MCP server and asked directly, so that names, schemas, conversions and error
texts are the same. A task's toolsets belong to one rollout; those of a taskset are set up once, in their own thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

_registering = threading.Lock()
_asking: ContextVar[Any] = ContextVar("the trace of the rollout that asks a shared toolset")

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Tool:
    """A function that the policy may call. `run`: runs a coroutine where those of the rollout run."""

    def __init__(
        self, schema: Mapping[str, Any], call: Callable[[str, Mapping[str, Any]], Coroutine[Any, Any, str]], run: Run
    ) -> None:
        self.__name__: str = schema["function"]["name"]
        self.json_schema = schema
        self._call = call
        self._run = run

    def __call__(self, **arguments: Any) -> str:
        """Returns what the tool answers; what it raises is an answer too, in verifiers' words."""
        answer: str = self._run(self._call(self.__name__, arguments))
        return answer


class Toolbox:
    """Some toolsets and the names of their tools; `trace` returns the trace of the rollout that asks."""

    def __init__(self, toolsets: Sequence[Any], trace: Callable[[], Any]) -> None:
        self._toolsets = toolsets
        self._trace = trace
        self._places: dict[str, tuple[Any, str]] = {}
        self.schemas: list[dict[str, Any]] = []

    async def open(self, data: Any | None) -> None:
        """Sets the toolsets up, for a task's `data` or shared."""
        for toolset in self._toolsets:
            self._share_state(toolset)
            await toolset.setup()
            if data is not None:
                await toolset.setup_task(data)
            server = _registered(toolset)
            for tool in await server.list_tools():
                name = f"{toolset.server_name}_{tool.name}" if toolset.server_name else tool.name
                self._places[name] = server, tool.name
                described = {"name": name, "description": tool.description or "", "parameters": tool.input_schema}
                self.schemas.append({"type": "function", "function": described})

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        from mcp.shared.exceptions import MCPError
        from verifiers.v1.harnesses.utils.compaction import truncate_tool_output

        server, tool = self._places[name]
        try:
            result = await server.call_tool(tool, dict(arguments))
        except MCPError:
            raise
        except Exception as error:
            text = str(error)
        else:
            text = "\n".join(_text(block) for block in result.content)
        short: str = truncate_tool_output(text)
        return short

    async def close(self) -> None:
        for toolset in self._toolsets:
            await toolset._exit_stack.aclose()  # what its setup entered, which the server of verifiers closes

    def _share_state(self, toolset: Any) -> None:
        """Has a toolset read and write the trace's state directly instead of asking verifiers for it by HTTP."""
        from pydantic import TypeAdapter

        async def pull() -> Any:
            adapter = TypeAdapter(type(self._trace().state))
            return adapter.validate_json(adapter.dump_json(self._trace().state))

        async def push(before: bytes) -> None:
            trace = self._trace()
            kept = TypeAdapter(type(toolset.state)).dump_json(toolset.state)
            trace.state = TypeAdapter(type(trace.state)).validate_json(kept)

        toolset._pull_state, toolset._push_state = pull, push


class SharedTools:
    """The toolsets that all rollouts of a taskset in one process share, set up when they are first asked for."""

    def __init__(self, toolsets: Sequence[Any]) -> None:
        self._box = Toolbox(toolsets, _asking.get)
        self._opening = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The schemas that the policy gets; raises what setting the tools up raises."""
        self._opened()
        return self._box.schemas

    async def call(self, trace: Any, name: str, arguments: Mapping[str, Any]) -> str:
        async def asked() -> str:
            _asking.set(trace)
            return await self._box.call(name, arguments)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked(), self._opened()))

    def _opened(self) -> asyncio.AbstractEventLoop:
        with self._opening:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="grpo-verifiers-tools", daemon=True).start()
                asyncio.run_coroutine_threadsafe(self._box.open(None), loop).result()
                self._loop = loop
            return self._loop


class RolloutTools:
    """The tools of one rollout. `shared`: those of the taskset, or None."""

    def __init__(self, shared: SharedTools | None, toolsets: Sequence[Any], trace: Any) -> None:
        self._shared = shared
        self._own = Toolbox(toolsets, lambda: trace)
        self._trace = trace

    async def open(self) -> None:
        """Sets the toolsets of the task up. Raises ValueError if two tools have one name."""
        await self._own.open(self._trace.task.data)
        names = [schema["function"]["name"] for schema in self.schemas]
        if double := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two of its tools are named '{double}'")

    @property
    def schemas(self) -> list[dict[str, Any]]:
        return [*(self._shared.schemas if self._shared else ()), *self._own.schemas]

    def tools(self, run: Run) -> list[Tool]:
        """Returns the tools, whose coroutines `run` runs."""
        shared = self._shared
        tools = [Tool(schema, partial(shared.call, self._trace), run) for schema in shared.schemas] if shared else []
        return tools + [Tool(schema, self._own.call, run) for schema in self._own.schemas]

    async def close(self) -> None:
        await self._own.close()


def _registered(toolset: Any) -> Any:
    """A server with a toolset's tools, without letting it set up the log of this process."""
    from mcp.server.mcpserver import MCPServer

    with _registering:
        quiet = logging.NullHandler()
        logging.root.addHandler(quiet)
        try:
            server = MCPServer(toolset.server_name or type(toolset).__name__)
        finally:
            logging.root.removeHandler(quiet)
    toolset.register(server)
    return server


def _text(block: Any) -> str:
    if block.type == "image":
        raise TypeError("a tool answered with a picture, which cannot be shown to the policy")
    return str(block.text if block.type == "text" else block)
