"""Agents are declared, named and refused as the other kinds are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from grpo.plugins._spec.binding import BoundAgent
from grpo.plugins._spec.soundness import spec_fault
from grpo.plugins._spec.spec_text import parse
from grpo.plugins.agent_decorator import agent
from grpo.plugins.agents import Access, AgentTask, Command
from grpo.plugins.errors import NotInstalled, OptionError, PluginError, PluginNotFound, SpecError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.specs import AgentSpec

TASK, ACCESS = AgentTask("Do it."), Access("http://127.0.0.1:1", "key", "policy")


def starts(task: AgentTask, access: Access, *, flag: str = "-p") -> Command:
    """Starts it."""
    return Command(["program", flag, task.text])


async def plays(task: AgentTask, access: Access) -> str | None:
    return None


def test_what_a_function_returns_says_what_it_is() -> None:
    assert agent(version=1)(starts).command
    assert not agent(version=1)(plays).command
    spec = agent(version=1)(starts)
    assert (spec.name, spec.doc, [option.name for option in spec.options]) == ("starts", "Starts it.", ["flag"])
    assert spec(TASK, ACCESS).argv == ["program", "-p", "Do it."]


@pytest.mark.parametrize(
    "source",
    ["lambda task: None", "lambda access, task: None", "lambda task, access, more: None", "lambda *task: None", "3"],
)
def test_another_signature_is_refused(source: str) -> None:
    with pytest.raises(SpecError, match=r"task|not a function"):
        agent(version=1, name="mine")(eval(source))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"protocols": ("soap",)}, "protocols"),
        ({"protocols": "chat"}, "protocols"),
        ({"answer": "stderr"}, "answer"),
        ({"environment": {"A": 1}}, "environment"),
        ({"name": "python"}, "another meaning"),
    ],
)
def test_metadata_that_cannot_be_used_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        agent(version=1, **arguments)(plays)  # type: ignore[arg-type]


@pytest.mark.parametrize("line", ["echo {instruction}", 'sh -c "a=1,b=2; echo :"', "x:y=1", "a.py:b"])
def test_a_command_line_is_one_option_whatever_it_holds(line: str) -> None:
    text = parse(f"cmd:{line}")
    assert (text.name, {name: value.parsed for name, value in text.options.items()}) == ("cmd", {"line": line})


@pytest.mark.parametrize("line", ["sh -c 'echo ${HOME} {1}'", "true $HOME/${USER} {} {1}", "true 'print({x})' {url}"])
def test_braces_of_programs_are_no_placeholders(line: str) -> None:
    assert Host.discover().agent(f"cmd:{line}").name == "cmd"


def test_a_program_of_this_folder_is_written_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.sh").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"the file agent\.sh may not be executed"):
        Host.discover().agent("cmd:agent.sh")
    (tmp_path / "agent.sh").chmod(0o755)
    with pytest.raises(UsageError, match=r"not on the PATH\. Write \./agent\.sh"):
        Host.discover().agent("cmd:agent.sh")
    assert Host.discover().agent("cmd:./agent.sh").spec.name == "cmd"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cmd:", "empty line"),
        ("cmd:'a", "No closing quotation"),
        ("cmd:true {instrution}", r"unknown placeholder {instrution}. Did you mean '{instruction}'\?"),
        ("cmd:true 'Do: {Instruction}'", r"unknown placeholder {Instruction}. Did you mean '{instruction}'\?"),
        ("cmd:true --to={task}", r"unknown placeholder {task}. There are {instruction}, {url}, {key} and {model}"),
        ("cmd:no-such-program x", "no program 'no-such-program' is on the PATH"),
        ("cmd:./no-such-program x", "no program is at "),
        ("cmd", "needs the option 'line'"),
        ("claude-cod", "Did you mean 'claude-code'"),
        ("codex:weight=2", "agents take no 'weight'"),
    ],
)
def test_a_spec_that_cannot_start_anything_is_refused(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Host.discover().agent(spec)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, r"config=/.*/mini\.yaml cannot be read: .*No such file"),
        ("agent: [", "cannot be read: while parsing"),
        ("[1]", r"lacks agent\.system_template"),
        ("agent: {system_template: a}", r"lacks agent\.instance_template"),
        ("agent: {system_template: a, instance_template: b, agent_class: interactive}", "agent_class: interactive"),
        ("agent: {system_template: a, instance_template: b}\nenvironment: {environment_class: docker}", "Write local"),
        ("agent: {system_template: a, instance_template: b}\nmodel: {model_class: openrouter}", "litellm_textbased"),
    ],
)
def test_settings_with_which_mini_swe_agent_cannot_play_are_refused(
    settings: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if settings is not None:
        Path("mini.yaml").write_text(settings)
    with pytest.raises(UsageError, match=message):
        Host.discover().agent("mini-swe-agent:config=mini.yaml")


def test_what_is_not_installed_is_refused_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotInstalled, match=r"'claude'.*npm install -g @anthropic-ai/claude-code"):
        Host.discover().agent("claude-code")
    spec = agent(version=1, modules={"no_such_module.below": "Install it with: pip install none"})(plays)
    with pytest.raises(NotInstalled, match=r"'no_such_module\.below'.*pip install none"):
        BoundAgent(spec, "").prepare()


def test_plain_functions_of_a_file_are_agents(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("async def run(task, access, *, n: int = 1): ...\ndef other(a, b): ...\n")
    host = Host.discover()
    for spec in (f"{tmp_path}/mine.py:run", f"python:{tmp_path}/mine.py:run", f"{tmp_path}/mine.py"):
        assert not host.agent(spec).spec.command
    assert host.agent(f"python:{tmp_path}/mine.py:run:n=3").options == {"n": 3}
    with pytest.raises(OptionError, match="'m'"):
        host.agent(f"{tmp_path}/mine.py:run:m=3")
    with pytest.raises(UsageError, match=r"is not an agent: .*'task' and 'access'"):
        host.agent(f"{tmp_path}/mine.py:other")
    with pytest.raises(PluginNotFound, match="no file"):
        host.agent("python:./nothing.py:run")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'argv'", "returned str"),
        ("Command('argv')", "no list of a program"),
        ("Command([])", "no list of a program"),
        ("Command(['a', 3])", "no text"),
        ("Command(['a\\0'])", "zero byte"),
        ("Command(['a'], environment={'A=B': 'c'})", "'=' in the name"),
        ("Command(['a'], files={'a': 3})", "files does not map"),
        ("1 / 0", "raised ZeroDivisionError"),
    ],
)
def test_a_command_that_cannot_be_started_names_its_plugin(returned: str, message: str) -> None:
    spec = AgentSpec("mine", 1, lambda task, access: eval(returned))
    with pytest.raises(PluginError, match=f"agent 'mine' of here {message}|agent 'mine' of here .*{message}"):
        BoundAgent(spec, "here").command(TASK, ACCESS)


def test_the_name_of_the_command_line_is_the_built_in_ones_alone() -> None:
    from grpo.plugins.specs import SandboxSpec

    assert "another meaning" in spec_fault("sandbox", SandboxSpec("cmd", 1, lambda: None))
    assert spec_fault("agent", AgentSpec("cmd", 1, plays)) == ""


def test_the_program_of_this_python_comes_first(tmp_path: Path) -> None:
    bound = Host.discover().agent(f"cmd:{Path(sys.executable).name} -c pass")
    assert bound.command(TASK, ACCESS).stdin == "Do it."
