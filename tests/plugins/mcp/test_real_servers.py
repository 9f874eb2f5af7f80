"""Real servers: two of PyPI, and in the nightly lane three of npm."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from grpo.plugins.agents import search_path
from grpo.plugins.host import Host
from grpo.plugins.mcp.pool import close_pools

pytestmark = [pytest.mark.mcp, pytest.mark.slow]
NPM = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    yield Host.discover()
    close_pools()


class Played:
    """An environment with one server, whose tools are called by name."""

    def __init__(self, host: Host, server: dict[str, Any], **row: Any) -> None:
        self.env: gymnasium.Env[str, str] = host.env({"name": "gsm8k", "mcp": [server]}).make()
        self.env.reset(seed=1, options={"row": {"question": "How many?", "answer": "1", **row}})
        self.tools = {tool.__name__: tool for tool in self.env.tools}

    def __call__(self, name: str, **arguments: Any) -> str:
        text: str = self.tools[name](**arguments)
        return text

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *error: object) -> None:
        self.env.close()


def test_time(host: Host) -> None:
    with Played(host, {"command": "mcp-server-time", "prefix": "clock_"}) as call:
        assert list(call.tools) == ["clock_get_current_time", "clock_convert_time"]
        there = {"source_timezone": "Asia/Tokyo", "target_timezone": "Asia/Kolkata", "time": "12:00"}
        assert json.loads(call("clock_convert_time", **there))["target"]["datetime"].endswith("T08:30:00+05:30")
        assert "Invalid timezone" in json.loads(call("clock_get_current_time", timezone="Mars"))["error"]
        assert "error" in json.loads(call("clock_convert_time", time=3))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git(host: Host, tmp_path: Path) -> None:
    for line in (["init", "-q", "-b", "main"], ["config", "user.name", "a"], ["config", "user.email", "a@b"]):
        subprocess.run(["git", *line], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("one\n")
    with Played(host, {"command": "mcp-server-git", "tools": ["git_add", "git_commit", "git_log"]}) as call:
        assert set(call.tools) == {"git_add", "git_commit", "git_log"}
        call("git_add", repo_path=str(tmp_path), files=["a.txt"])
        assert "committed" in call("git_commit", repo_path=str(tmp_path), message="the first")
        assert "the first" in call("git_log", repo_path=str(tmp_path))
        assert "error" in json.loads(call("git_log", repo_path="/nowhere"))


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the programs of three servers that npm installs."""
    if shutil.which("npm", path=search_path()) is None:
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("npm")
    packages = [f"{name}@{version}" for name, version in NPM.items()]
    subprocess.run(["npm", "install", "--silent", "--prefix", str(folder), *packages], check=True)
    return folder / "node_modules" / ".bin"


@pytest.mark.nightly
def test_filesystem(host: Host, npm: Path) -> None:
    server = {"command": [str(npm / "mcp-server-filesystem"), "{folder}"]}
    with Played(host, server, files={"a/b.txt": "hello"}) as call, Played(host, server) as other:
        assert len(call.tools) == 14
        folder = call("list_allowed_directories").splitlines()[-1]
        assert call("read_text_file", path=f"{folder}/a/b.txt") == "hello"
        assert "Successfully wrote" in call("write_file", path=f"{folder}/c.txt", content="x")
        assert "denied" in json.loads(call("read_text_file", path="/etc/passwd"))["error"]
        assert "denied" in json.loads(other("read_text_file", path=f"{folder}/c.txt"))["error"]


@pytest.mark.nightly
def test_memory(host: Host, npm: Path) -> None:
    place = {"MEMORY_FILE_PATH": "{folder}/memory.json"}
    server = {"command": [str(npm / "mcp-server-memory")], "environment": place}
    ann = {"name": "Ann", "entityType": "person", "observations": ["has 3 pens"]}
    with Played(host, server) as call, Played(host, server) as other:
        call("create_entities", entities=[ann])
        assert "has 3 pens" in call("search_nodes", query="Ann")
        assert "has 3 pens" not in other("search_nodes", query="Ann")


@pytest.mark.nightly
def test_everything(host: Host, npm: Path) -> None:
    with Played(host, {"command": [str(npm / "mcp-server-everything")], "seconds": 3}) as call:
        assert call("echo", message="hello") == "Echo: hello"
        assert "[an image (image/png) that cannot be shown here]" in call("get-tiny-image")
        assert "Long running operation completed" in call("trigger-long-running-operation", duration=1, steps=5)
        late = call("trigger-long-running-operation", duration=60, steps=2)
        assert late == '{"error": "the call took longer than 3 s and was given up"}'
        assert call("get-sum", a=1, b=2).startswith("The sum of 1 and 2 is 3")
        assert "error" in json.loads(call("get-sum", a="x"))
