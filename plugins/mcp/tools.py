"""Turns the tools of MCP servers into functions that an environment offers to its policy."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo.plugins.errors import OptionError, SessionError, SessionLost, TransientError, did_you_mean
from grpo.plugins.mcp.connection import Connection
from grpo.plugins.mcp.pool import pool_of
from grpo.plugins.mcp.servers import McpServer

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Seat:
    """One episode's place at one server, taken with the first call and kept; `files` are written before it."""

    def __init__(self, server: McpServer, files: Mapping[str, str]) -> None:
        self._pool = pool_of(server)
        self._files = files
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._asked = False  # for a server, whether it got one or not
        self._open = True
        self._pool.begin()

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Calls a tool and returns what the policy is shown. Raises TransientError if the server is lost."""
        with self._lock:
            if not self._open:
                raise TransientError(f"MCP server '{self._pool.server.name}': the episode is over")
            if self._connection is None:
                self._connection = self._taken()
            connection = self._connection
        return connection.call(name, arguments)

    def close(self) -> None:
        """Ends the episode's server."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            if self._connection is not None:
                self._connection.close()
            self._pool.end(asked=self._asked)

    def _taken(self) -> Connection:
        first, self._asked = not self._asked, True
        connection = self._pool.take(first=first)
        there = {tool.name for tool in connection.tools}
        wanted = self._pool.server.tools or [tool.name for tool in self._pool.tools()]
        missing = [name for name in wanted if name not in there]
        if missing:
            connection.close()
            raise TransientError(
                f"MCP server '{self._pool.server.name}' does not offer '{missing[0]}', which it offered when the run "
                "began"
            )
        try:
            connection.give_files(self._files)
        except (OSError, SessionError, SessionLost) as error:
            connection.close()
            raise TransientError(f"the files of the task cannot be written: {error}") from error
        return connection


class ServerTool:
    """One tool of a server as a function of keywords, with its name and its schema for the policy."""

    def __init__(self, seat: Seat, tool: Any, prefix: str) -> None:
        self._seat = seat
        self._tool = tool.name
        self.__name__ = f"{prefix}{tool.name}"
        parameters = {**tool.input_schema, "type": "object", "properties": tool.input_schema.get("properties") or {}}
        parameters.pop("$schema", None)
        description = tool.description or ""
        function = {"name": self.__name__, "description": description, "parameters": parameters}
        self.json_schema = {"type": "function", "function": function}

    def __call__(self, /, **arguments: Any) -> str:
        return self._seat.call(self._tool, arguments)


def offered(server: McpServer) -> list[Any]:
    """Returns the tools to offer of those that a server lists. OptionError: it lacks one, or does not start."""
    try:
        listed = {tool.name: tool for tool in pool_of(server).tools()}
    except TransientError as error:
        raise OptionError(f"{error}. Try it by hand; without its tools no run can start.") from error
    for name in server.tools:
        if name not in listed:
            raise OptionError(
                f"MCP server '{server.name}' has no tool '{name}'.{did_you_mean(name, listed)} It has: "
                f"{', '.join(listed) or 'none'}."
            )
    chosen = [tool for name, tool in listed.items() if name in (server.tools or listed)]
    if not chosen:
        raise OptionError(f"MCP server '{server.name}' has no tools. Leave it out.")
    for tool in chosen:
        if not _NAME.fullmatch(f"{server.prefix}{tool.name}"):
            raise OptionError(
                f"MCP server '{server.name}': '{server.prefix}{tool.name}' cannot be the name of a tool, which has "
                "letters, digits, '_', '.' and '-'. Change prefix, or pick other tools with tools=[...]."
            )
    return chosen


def tools_of(
    own: Sequence[Callable[..., Any]], seats: Sequence[tuple[McpServer, Seat]], env: str
) -> list[Callable[..., Any]]:
    """Returns the tools of an environment and of its servers. Raises OptionError if two have one name."""
    owner = {getattr(function, "__name__", ""): f"env '{env}'" for function in own}
    functions = list(own)
    for server, seat in seats:
        who = f"MCP server '{server.name}'"
        for tool in (ServerTool(seat, each, server.prefix) for each in offered(server)):
            if (other := owner.setdefault(tool.__name__, who)) is not who:
                raise OptionError(
                    f"two tools are named '{tool.__name__}': one of {other} and one of {who}. Give the server a "
                    "prefix, or pick others with tools=[...]."
                )
            functions.append(tool)
    return functions
