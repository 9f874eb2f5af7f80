"""Plays an episode with shell commands that the policy writes, one for each request.

Keep the imports light: every grpo command that lists plugins makes them.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import Any

from grpo import Access, AgentSpec, AgentTask, agent, hookimpl

grpo_contract = 1

PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
BASH = {"type": "function", "function": {"name": "bash", "description": "Runs a command.", "parameters": PARAMETERS}}


@agent(version=1, protocols=("chat",))
def one_command(task: AgentTask, access: Access, *, most: int = 10) -> str:
    """Runs the commands that the policy asks for until it answers.

    It runs in a process of its own, in the working directory of its episode. Whatever it starts is ended with it.

    Args:
        task: what is asked.
        access: to the policy.
        most: how many requests it makes at most.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.text}]
    for _ in range(most):
        message = _asked(access, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message.get("content") or "")
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"]).get("command", "")
            ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": ended.stdout + ended.stderr})
    return ""


def _asked(access: Access, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": access.model, "messages": messages, "tools": [BASH]}).encode()
    headers = {"Authorization": f"Bearer {access.key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{access.url}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request) as response:
        message: dict[str, Any] = json.load(response)["choices"][0]["message"]
    return message


@hookimpl
def grpo_agents() -> list[AgentSpec]:
    """Offers the agent to grpo."""
    return [one_command]
