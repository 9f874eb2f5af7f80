"""An MCP server over HTTP, with the package mcp: it prints its port, counts for each process, and may end."""

from __future__ import annotations

import os
import socket
from typing import Any

from mcp.server.mcpserver import MCPServer

server: Any = MCPServer("test")
count = 0


def counted() -> str:
    """Counts."""
    global count
    count += 1
    return str(count)


def fails() -> str:
    """Fails."""
    raise ValueError("the disk is full")


def ends() -> str:
    """Ends the server."""
    os._exit(3)


if __name__ == "__main__":
    for tool in (counted, fails, ends):
        server.tool()(tool)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(port, flush=True)
    server.run(transport="streamable-http", port=port)
