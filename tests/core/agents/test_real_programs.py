"""Programs that people ship play an episode behind the gateway, each through its built-in plugin.

They run where they are installed: the programs on the PATH, the libraries for this Python.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from session_agents import gateway, played

from grpo.core.check.agent import check_agent
from grpo.plugins.errors import NotInstalled

pytestmark = pytest.mark.nightly
MINI = "examples/grpo-env-chores/mini.yaml"
FIRST = {
    "claude-code": "messages, streamed",
    "codex": "responses, streamed",
    "opencode": "chat, streamed",
    "qwen-code": "chat, streamed",
    "mini-swe-agent": "chat, not streamed",
    f"mini-swe-agent:config={MINI}": "chat, not streamed",
    "openai-agents": "chat, not streamed",
    "openai-agents:api=responses": "responses, not streamed",
    "smolagents": "chat, not streamed",
    "smolagents:code=true": "chat, not streamed",
}
LANGGRAPH = '''
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
import subprocess

@tool
def bash(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

async def run(task, access):
    model = ChatOpenAI(model=access.model, base_url=f"{access.url}/v1", api_key=access.key)
    ended = await create_react_agent(model, [bash]).ainvoke({"messages": [("user", task.text)]})
    return ended["messages"][-1].content
'''


@pytest.mark.parametrize("spec", FIRST)
def test_a_built_in_agent_plays_and_nothing_is_wrong(spec: str) -> None:
    try:
        report = check_agent(spec, seconds=300)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    assert not report.findings, str(report)
    assert not report.not_tried, str(report)
    assert report.facts[0].startswith(f"first request: {FIRST[spec]}, ")


def test_a_langgraph_program_plays_and_nothing_is_wrong(tmp_path: Path) -> None:
    for module in ("langgraph", "langchain_openai"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: pip install langgraph langchain-openai")
    (tmp_path / "graph.py").write_text(LANGGRAPH)
    report = check_agent(f"{tmp_path}/graph.py:run", seconds=300)
    assert not report.findings, str(report)


@pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")
@pytest.mark.parametrize("spec", ["mini-swe-agent:steps=3", "openai-agents", "smolagents:steps=3"])
def test_a_library_plays_inside_the_session_of_its_episode(spec: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with gateway() as access:
        try:
            left = played(spec, access, tmp_path, "test $(cat answer.txt) = 42", seconds=300)
        except NotInstalled as missing:
            pytest.skip(str(missing))
    assert left.graded is not None, (left.problem, left.stderr)
    assert left.graded.reward == 1.0, (left.problem, left.stderr)
