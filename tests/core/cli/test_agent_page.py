"""Episodes of agents as `grpo show` prints them."""

from __future__ import annotations

import json

import pytest
from agent_run import agent_run
from click.testing import CliRunner

from grpo.core.cli.agent_page import use
from grpo.core.cli.main import cli
from grpo.core.record.run_dir import RunDir


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return agent_run(tmp_path_factory.mktemp("run") / "agents")


def shown(run: RunDir, *options: str) -> str:
    done = CliRunner().invoke(cli, ["show", str(run.path), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_an_episode_is_its_calls_with_branches_further_in(run: RunDir) -> None:
    text = shown(run, "--limit", "1")
    calls = [line for line in text.splitlines() if line.lstrip().startswith("call ")]
    assert [line.partition(";")[0] for line in calls] == [
        "call 0, begins: the first",
        "call 1, begins: other tools",
        "call 2, continues call 1",
        "    call 3, continues call 1",
        "call 4, begins: another system message",
        "call 5, begins: a compacted history",
        "call 6, begins: other tools",
    ]
    states = [line.partition("; ")[2].partition(",")[0] for line in calls]
    auxiliary = "does not train (auxiliary: see rollout.agent_trains)"
    assert states == [auxiliary, "trains", "trains", "trains", "trains", "trains", "not delivered"]
    assert calls[1].endswith("without effect: temperature")
    assert '  | Let me look.\n  | bash(command="wc -l a.txt")\n' in text
    assert "tool:\n  | 3 a.txt\n  | more\n" in text
    assert "    tool:\n      | 3 a.txt\n    user:\n      | In other words?\n" in text
    assert (
        "answer:\n  | 3\nthe agent ended with exit status 0\nchanged files:\n  | a.txt\n  | b.txt (deleted)\n" in text
    )


def test_a_system_message_is_shown_once_in_a_page(run: RunDir) -> None:
    text = shown(run, "--limit", "2")
    assert text.count("| Use bash.") == 1
    assert "system: as in #0, call 1" in text


def test_a_failed_episode_says_why_and_how_its_program_ended(run: RunDir) -> None:
    text = shown(run).partition("#3")[2]
    assert "0 calls of the agent, 0 tokens trained" in text
    assert "the agent ended with exit status 1\nthe episode failed:\n  | the agent ended" in text
    assert "the end of its standard error:\n  | FileNotFoundError: settings.json\n" in text


def test_json_has_the_calls_without_their_token_ids(run: RunDir) -> None:
    first = json.loads(shown(run, "--json", "--limit", "1"))[0]
    tree = first["info"]["agent"]["tree"]
    assert [call["parent"] for call in tree] == [None, None, 1, 1, None, None, None]
    assert not any({"new_ids", "ids", "at"} & call.keys() for call in tree)


def test_a_tools_name_and_arguments_cannot_pass_for_lines_of_the_page() -> None:
    assert use("bash", {"command": "a\nreward 1"}) == 'bash(command="a\\nreward 1")'
    assert use("bash", {}) == "bash()"
