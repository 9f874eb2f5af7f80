"""The check of an agent tells what it sends and what does not hold, whatever the agent does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grpo.core.check.agent import check_agent
from grpo.core.check.report import Report

pytestmark = pytest.mark.slow

CLIENT = """
import json, subprocess, urllib.request

def ask(access, messages, tools=(), path="chat/completions", **more):
    body = json.dumps({"model": access.model, "messages": messages, "tools": list(tools)} | more).encode()
    headers = {"Authorization": f"Bearer {access.key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{access.url}/v1/{path}", body, headers)) as response:
        return json.load(response)["choices"][0]["message"]

COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
BASH = {"type": "function", "function": {"name": "bash", "description": "Runs.", "parameters": COMMAND}}

def loop(access, messages, run=True):
    while True:
        message = ask(access, messages, [BASH])
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            said = subprocess.run(command, shell=True, capture_output=True, text=True).stdout if run else "done"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
"""


def checked(tmp_path: Path, body: str, seconds: float = 60.0) -> Report:
    (tmp_path / "mine.py").write_text(f"{CLIENT}\n{body}\n")
    return check_agent(f"{tmp_path}/mine.py:run", seconds=seconds)


@pytest.mark.core
def test_an_honest_agent_holds_and_its_requests_are_described(tmp_path: Path) -> None:
    report = checked(
        tmp_path,
        "def run(task, access):\n    ask(access, [{'role': 'user', 'content': 'a title'}])\n"
        "    return loop(access, [{'role': 'user', 'content': task.text}])",
    )
    assert not report.findings, str(report)
    first, requests, end = report.facts
    assert first.startswith("first request: chat, not streamed, ")
    assert first.endswith("1 message, 0 tools")
    assert requests.startswith("requests: 3, of them 2 helper calls ")
    assert end.startswith("end: exit code 0 after ")
    assert end.endswith("answer: 'The task is done.'")


@pytest.mark.parametrize(
    ("body", "relation", "severity", "message"),
    [
        (
            "def run(task, access): return ''",
            "asks the policy",
            "error",
            "exit code 0, and it had sent no request with its key",
        ),
        ("def run(task, access): return 3", "starts", "error", "it returned int"),
        (
            "import os\ndef run(task, access): return ask(access, [{'role': 'user', 'content': access.key}]) and ''",
            "same prompt",
            "error",
            "with another text",
        ),
        (
            "def run(task, access): return loop(access, [{'role': 'user', 'content': task.text}], run=False)",
            "tool results",
            "warning",
            "no later request",
        ),
        (
            "def run(task, access): return ask(access, [{'role': 'user', 'content': task.text}], model='gpt-4o')",
            "asks the policy",
            "error",
            "the gateway had refused 1 request",
        ),
        (
            "def run(task, access):\n    loop(access, [{'role': 'user', 'content': 'x'}])\n    raise SystemExit(7)",
            "ends by itself",
            "warning",
            "exit code 7",
        ),
    ],
)
def test_what_does_not_hold_is_named(tmp_path: Path, body: str, relation: str, severity: str, message: str) -> None:
    report = checked(tmp_path, body)
    [finding] = [each for each in report.findings if each.relation == relation]
    assert finding.severity == severity
    assert message in finding.message


def test_an_agent_that_never_asked_has_no_answer(tmp_path: Path) -> None:
    report = checked(tmp_path, "def run(task, access): raise SystemExit(1)")
    [end] = [fact for fact in report.facts if fact.startswith("end: ")]
    assert end.startswith("end: exit code 1 after ")
    assert end.endswith("answer: none, because the policy never answered")


def test_refused_requests_are_not_taken_for_none(tmp_path: Path) -> None:
    picture = "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'x'}}]}]"
    asks = f"    try: ask(access, {picture})\n    except Exception: pass\n"
    report = checked(tmp_path, f"def run(task, access):\n{asks}")
    assert "refused 1 request" in report.findings[0].message
    assert "image" in str(report.findings[0].example)
    report = checked(
        tmp_path, f"def run(task, access):\n{asks}    ask(access, [{{'role': 'user', 'content': task.text}}])"
    )
    assert [(each.severity, each.relation) for each in report.findings] == [("warning", "asks the policy")]


def test_a_plain_function_may_call_any_api(tmp_path: Path) -> None:
    body = """
import json, urllib.request
def run(task, access):
    body = {"model": access.model, "max_tokens": 9, "messages": [{"role": "user", "content": task.text}]}
    headers = {"x-api-key": access.key, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{access.url}/v1/messages", json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))["content"][0]["text"]
"""
    assert not checked(tmp_path, body).findings


def test_an_agent_that_runs_on_is_told(tmp_path: Path) -> None:
    body = (
        "import time\ndef run(task, access):\n    ask(access, [{'role': 'user', 'content': 'x'}])\n    time.sleep(1000)"
    )
    report = checked(tmp_path, body, seconds=3.0)
    assert [finding.relation for finding in report.findings if finding.severity == "error"] == ["ends by itself"]


def test_an_agent_that_never_stops_asking_is_refused_and_no_fault_of_the_check(tmp_path: Path) -> None:
    body = (
        "def run(task, access):\n    messages = [{'role': 'user', 'content': task.text}]\n    while True:\n"
        "        messages += [ask(access, messages), {'role': 'user', 'content': 'go on'}]"
    )
    report = checked(tmp_path, body)
    assert report.ok
    assert any("it asked on after 12 requests" in sentence for sentence in report.not_tried)


def test_an_api_that_is_not_declared_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"{CLIENT}\nfrom grpo import agent\n@agent(version=1, protocols=('messages',))\n"
        "def run(task, access): return loop(access, [{'role': 'user', 'content': task.text}])\n"
    )
    report = check_agent(f"{tmp_path}/mine.py:run")
    [finding] = report.findings
    assert (finding.relation, finding.severity) == ("declared APIs", "error")


def test_the_command_prints_the_report_and_refuses_what_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"{CLIENT}\ndef run(task, access): return loop(access, [{{'role': 'user', 'content': task.text}}])\n"
    )
    check = [sys.executable, "-m", "grpo", "plugins", "check"]
    done = subprocess.run([*check, "--json", "agent:./mine.py:run"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    [report] = json.loads(done.stdout)
    assert (report["plugin"], report["ok"]) == ("agent run", True)
    done = subprocess.run([*check, "agent:cmd:no-such-program"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"no program 'no-such-program' is on the PATH" in done.stderr
    assert b"playing two episodes side by side, of at most 120 s" in done.stderr
