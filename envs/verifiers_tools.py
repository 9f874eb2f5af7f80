"""The tools of a task of verifiers, in this process: its toolsets in, functions that the policy may call out.

Verifiers runs a toolset as a server of the Model Context Protocol in a process of its own. Here it is registered with
the same server and asked directly, so that names, schemas, conversions and error texts are the same ones, and what its
methods keep in `self.state` goes into the trace of their rollout. A toolset belongs to one rollout.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

_registering = threading.Lock()

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Tool:
    """A function that the policy may call.

    Args:
        schema: what the policy is told of it.
        call: tool name and arguments to its answer.
        run: runs a coroutine where those of the rollout run.
    """

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
    """The toolsets of one rollout.

    Args:
        toolsets: fresh ones.
        trace: of the rollout; its state is theirs.
    """

    def __init__(self, toolsets: Sequence[Any], trace: Any) -> None:
        self._toolsets = toolsets
        self._trace = trace
        self._places: dict[str, tuple[Any, str]] = {}
        self.schemas: list[dict[str, Any]] = []

    async def open(self) -> None:
        """Sets the toolsets up for the task.

        Raises:
            ValueError: two tools have one name.
        """
        for toolset in self._toolsets:
            self._share_state(toolset)
            await toolset.setup()
            await toolset.setup_task(self._trace.task.data)
            server = _registered(toolset)
            for tool in await server.list_tools():
                name = f"{toolset.server_name}_{tool.name}" if toolset.server_name else tool.name
                if name in self._places:
                    raise ValueError(f"two of its tools are named '{name}'")
                self._places[name] = server, tool.name
                described = {"name": name, "description": tool.description or "", "parameters": tool.input_schema}
                self.schemas.append({"type": "function", "function": described})

    def tools(self, run: Run) -> list[Tool]:
        """Returns the tools, whose coroutines `run` runs."""
        return [Tool(schema, self.call, run) for schema in self.schemas]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns what a tool answers."""
        from mcp.shared.exceptions import MCPError
        from verifiers.v1.harnesses.utils.compaction import truncate_tool_output

        server, tool = self._places[name]
        try:
            result = await server.call_tool(tool, dict(arguments))
        except MCPError:
            raise
        except Exception as error:
            said = str(error)
        else:
            said = "\n".join(_text(block) for block in result.content)
        short: str = truncate_tool_output(said)
        return short

    async def close(self) -> None:
        """Lets go of what the toolsets hold."""
        for toolset in self._toolsets:
            await toolset._exit_stack.aclose()  # what its setup entered, which the server of verifiers closes

    def _share_state(self, toolset: Any) -> None:
        """Has a toolset read and write the state of the trace in the place of asking verifiers for it by HTTP."""
        from pydantic import TypeAdapter

        adapter = TypeAdapter(type(self._trace.state))

        async def pull() -> Any:
            return adapter.validate_json(adapter.dump_json(self._trace.state))

        async def push(before: bytes) -> None:
            self._trace.state = adapter.validate_json(TypeAdapter(type(toolset.state)).dump_json(toolset.state))

        toolset._pull_state, toolset._push_state = pull, push


def _registered(toolset: Any) -> Any:
    """Returns a server with the tools of a toolset; it would set up the log of this process, which is not its own."""
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
