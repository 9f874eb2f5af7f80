"""Environments with servers: whose tools are offered, what an episode has of its own, what fails it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo.core.check.env import check_env
from grpo.core.env.env_batch import LocalEnvBatch
from grpo.core.env.episodes import Episode, episodes_of
from grpo.core.env.processes import EnvProcesses
from grpo.core.env.step import take_step
from grpo.core.env.threads import Raised
from grpo.core.env.tools import ToolCall
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, OptionError, TransientError
from grpo.plugins.host import Host
from grpo.plugins.mcp.attach import TURNS

pytestmark = pytest.mark.mcp
SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"
COMMAND = [sys.executable, str(SERVER)]


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.discover()


def bound(host: Host, name: str, *servers: dict[str, Any], **options: Any) -> BoundEnv:
    mcp = [{"command": COMMAND, "tools": ["echo", "count", "crash", "where"], **server} for server in servers or ({},)]
    return host.env({"name": name, "mcp": mcp, "options": options})


def started(env: BoundEnv) -> Episode:
    [episode] = episodes_of(env, "train", limit=1, unbounded=1)
    return episode


def test_an_environment_of_one_turn_offers_tools_and_ends_with_an_answer(host: Host) -> None:
    env = bound(host, "gsm8k")
    assert env.spec.max_turns == 1 + TURNS
    episode = started(env)
    assert [tool["function"]["name"] for tool in episode.tools] == ["echo", "count", "crash", "where"]
    assert episode.tools[0]["function"]["parameters"]["properties"]["text"]["type"] == "string"
    with LocalEnvBatch(env.make, seconds=60) as envs:
        assert envs.start({0: episode, 1: episode}) == {0: True, 1: True}
        assert envs.use({0: ToolCall("count", {}), 1: ToolCall("echo", {"text": "x"})}) == {0: "1", 1: "x"}
        assert envs.use({0: ToolCall("count", {}), 1: ToolCall("count", {})}) == {0: "2", 1: "1"}
        answer = envs.call({0: lambda made: take_step("42", made)})[0]
        assert (answer.terminated, answer.reward, answer.observation) == (True, 0.0, "")


def test_a_lost_server_fails_its_episode_and_no_other(host: Host) -> None:
    env = bound(host, "gsm8k")
    episode = started(env)
    with LocalEnvBatch(env.make, seconds=60) as envs:
        envs.start({0: episode, 1: episode})
        answers = envs.use({0: ToolCall("crash", {}), 1: ToolCall("echo", {"text": "x"})})
        assert isinstance(answers[0], Raised)
        assert isinstance(answers[0].error, TransientError)
        assert answers[1] == "x"


def test_tools_stand_beside_the_turns_and_the_tools_of_an_environment(host: Host) -> None:
    env = bound(host, "guess", {"prefix": "a_"}, {"prefix": "b_", "tools": ["count"]})
    made = env.make()
    made.reset(seed=1)
    assert [tool.__name__ for tool in made.tools] == ["a_echo", "a_count", "a_crash", "a_where", "b_count"]
    assert [made.tools[1](), made.tools[4](), made.tools[1]()] == ["1", "1", "2"]
    assert made.step("3")[0]
    made.reset(seed=2)
    assert made.tools[1]() == "1"
    made.close()
    both = bound(host, "python-tool").make()
    both.reset(seed=1)
    assert [tool.__name__ for tool in both.tools][:2] == ["python", "echo"]
    both.close()


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        (({}, {"tools": ["echo"], "prefix": "co", "command": [*COMMAND, "pages"]}), None),
        (
            ({}, {"command": [*COMMAND, "pages"]}),
            r"two tools are named 'echo': one of MCP server '.*mcp_server.py' and one of MCP server '.*pages'",
        ),
        (({"tools": ["eko"]},), r"has no tool 'eko'. It has: echo, count"),
        (({"command": [*COMMAND, "none"], "tools": []},), "has no tools. Leave it out"),
        (({"prefix": "a b/"},), r"'a b/echo' cannot be the name of a tool"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(host: Host, servers: Any, why: str | None) -> None:
    made = bound(host, "gsm8k", *servers).make()
    made.reset(seed=1)
    if why is None:
        assert made.tools
    else:
        with pytest.raises(OptionError, match=why):
            _ = made.tools
    made.close()


def test_a_tool_of_the_environment_and_one_of_a_server_clash(host: Host) -> None:
    made = bound(host, "python-tool", {"tools": ["echo"], "prefix": ""}).make()
    made.reset(seed=1)
    made.inner.python.__func__.__name__ = "echo"
    try:
        with pytest.raises(OptionError, match=r"two tools are named 'echo': one of env 'python-tool' and one of MCP"):
            _ = made.tools
    finally:
        made.inner.python.__func__.__name__ = "python"
        made.close()


def test_the_files_of_a_row_are_in_the_folder_of_its_server(host: Host, tmp_path: Path) -> None:
    rows = [
        {"prompt": "Count.", "answer": "2", "files": {"a.txt": "1", "b/c.txt": "2"}},
        {"prompt": "x", "answer": "1"},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    env = bound(host, "rows", dataset=str(tmp_path / "rows.json"))
    with LocalEnvBatch(env.make, seconds=60) as envs:
        envs.start({0: started(env)})
        assert json.loads(envs.use({0: ToolCall("where", {})})[0])[1:] == ["a.txt", "b"]


@pytest.mark.parametrize("files", [["a"], {"../a": "x"}, {"/a": "x"}, {"a": 1}, {"": "x"}])
def test_files_that_are_none_are_refused(host: Host, files: Any) -> None:
    made = bound(host, "rows", dataset="x.jsonl").make()
    with pytest.raises(DatasetError, match="the column 'files'"):
        made.reset(options={"row": {"prompt": "Count.", "answer": "2", "files": files}})


def test_another_list_of_tools_than_at_first_is_a_failure(host: Host, tmp_path: Path) -> None:
    script = tmp_path / "fickle.py"
    marker = tmp_path / "marker"
    lines = f"import pathlib, sys, mcp_server\nmarker = pathlib.Path({str(marker)!r})\nif marker.exists():\n"
    lines += "    mcp_server.state['changed'] = 1\nmcp_server.serve()\n"
    script.write_text(f"import sys; sys.path.insert(0, {str(SERVER.parent)!r})\n{lines}")
    env = bound(host, "gsm8k", {"command": [sys.executable, str(script)], "tools": ["echo", "where"]})

    def play() -> str:
        made = env.make()
        made.reset(seed=1)
        answer: str = made.tools[0](text="x")
        made.close()
        return answer

    assert play() == "x"
    marker.touch()
    with pytest.raises(TransientError, match="does not offer 'where', which it offered when the run began"):
        _ = [play() for _ in range(3)]  # the first of them may have been started before


def test_rows_with_a_server_are_an_environment(host: Host, tmp_path: Path) -> None:
    rows = [{"question": f"Say {n}.", "answer": str(n)} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    line = f"{sys.executable} {SERVER}"
    name = {"name": "mcp", "options": {"server": line, "tools": ["count"], "dataset": str(tmp_path / "rows.jsonl")}}
    env = host.env(name).settled()
    assert (env.spec.rewards, env.spec.verifier, env.spec.max_turns) == (("math",), "math", 1 + TURNS)
    [server] = env.servers
    assert server.tools == ("count",)
    episode = started(env)
    assert [tool["function"]["name"] for tool in episode.tools] == ["count"]
    with LocalEnvBatch(env.make, seconds=60) as envs:
        envs.start({0: episode})
        assert envs.use({0: ToolCall("count", {})}) == {0: "1"}


def test_servers_are_in_the_record_of_a_run(host: Host) -> None:
    record = host.lock(bound(host, "gsm8k", {"prefix": "p_"}))
    assert record["mcp"][0]["command"] == COMMAND
    assert record["mcp"][0]["prefix"] == "p_"
    assert record["sha256"] == host.lock(host.env("gsm8k"))["sha256"]


def test_environments_with_servers_are_stepped_in_processes(host: Host) -> None:
    env = bound(host, "gsm8k")
    episode = started(env)
    processes = EnvProcesses(env, 1)
    try:
        with processes.played(60.0) as envs:
            assert envs.start({0: episode}) == {0: True}
            assert envs.use({0: ToolCall("count", {})}) == {0: "1"}
            assert isinstance(envs.use({0: ToolCall("crash", {})})[0].error, TransientError)
    finally:
        processes.close()


def test_an_environment_with_servers_passes_the_checks(host: Host) -> None:
    report = check_env(bound(host, "gsm8k", {"tools": ["echo", "fails"]}))
    assert report.ok, report
