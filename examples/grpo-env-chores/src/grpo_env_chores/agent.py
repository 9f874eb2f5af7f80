"""Plays a task by one question: the policy writes commands in a fenced block, and they run."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request

from grpo import Access, AgentTask

SYSTEM = "You solve tasks in a Linux shell. Answer with one block of commands:\n```bash\ncommands\n```"


def ask(access: Access, question: str) -> str:
    """Returns the policy's answer."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    request = urllib.request.Request(
        f"{access.url}/v1/chat/completions",
        json.dumps({"model": access.model, "messages": messages}).encode(),
        {"Authorization": f"Bearer {access.key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"] or ""


def run(task: AgentTask, access: Access) -> str:
    text = ask(access, task.instruction)
    if block := re.search(r"```(?:bash|sh)?\n(.*?)```", text, re.DOTALL):
        subprocess.run(["bash", "-c", block[1]], timeout=10, check=False)
    return text
