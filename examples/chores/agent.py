"""An agent of one question: the policy writes commands in a fenced block, and they run."""

import json
import re
import subprocess
import urllib.request

SYSTEM = "You solve tasks in a Linux shell. Answer with one block of commands:\n```bash\ncommands\n```"


def ask(access, messages):
    body = json.dumps({"model": access.model, "messages": messages}).encode()
    request = urllib.request.Request(
        f"{access.url}/v1/chat/completions",
        body,
        {"Authorization": f"Bearer {access.key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"] or ""


def run(task, access):
    text = ask(access, [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.instruction}])
    block = re.search(r"```(?:bash|sh)?\n(.*?)```", text, re.DOTALL)
    if block:
        subprocess.run(["bash", "-c", block[1]], timeout=10, check=False)
    return text
