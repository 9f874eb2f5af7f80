"""`grpo serve-mcp` as a client sees it: an environment over MCP, beside tools of another server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo.plugins.mcp.connection import Connection, on_loop
from grpo.plugins.mcp.servers import McpServer

pytestmark = [pytest.mark.mcp, pytest.mark.slow]
SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"


@pytest.fixture
def client() -> Callable[[str], Connection]:
    """Starts the command for an environment and connects to it."""

    async def connect(server: McpServer) -> Connection:
        made = Connection(server)
        await made.ready()
        return made

    def begin(env: str) -> Connection:
        line = (sys.executable, "-m", "grpo", "serve-mcp", env)
        path = (("PYTHONPATH", os.environ.get("PYTHONPATH", "")),)
        found: Connection = on_loop(connect(McpServer(command=line, environment=path))).result()
        return found

    return begin


def test_a_client_plays_an_environment(client: Callable[[str], Connection]) -> None:
    made = client("gsm8k:level=easy,size=4")
    try:
        assert [tool.name for tool in made.tools] == ["reset", "submit"]
        assert made.call("submit", {"text": "1"}) == '{"error": "no task is open: call reset first"}'
        assert made.call("reset", {"index": 1}).endswith("?")
        assert "Score: " in made.call("submit", {"text": "<answer>\n1\n</answer>"})
        assert made.call("reset", {"index": 9}).startswith('{"error": "there is no task 9')
        assert made.call("reset", {"index": "a"}) == '{"error": "index must be a whole number"}'
        assert made.call("other", {}) == '{"error": "there is no tool \'other\'"}'
    finally:
        made.close().result()


def test_an_environment_with_servers_is_served_with_their_tools(client: Callable[[str], Connection]) -> None:
    server = json.dumps({"command": [sys.executable, str(SERVER)], "tools": ["count", "crash"]})
    made = client(f"gsm8k:mcp={server}")
    try:
        assert [tool.name for tool in made.tools] == ["reset", "submit", "count", "crash"]
        made.call("reset", {})
        assert [made.call("count", {}), made.call("count", {})] == ["1", "2"]
        made.call("reset", {})
        assert made.call("count", {}) == "1"
        assert "The task failed, and has no score" in made.call("crash", {})
    finally:
        made.close().result()
