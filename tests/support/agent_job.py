"""Small runs of an agent that asks twice and now and then begins anew, at a pace that is never the same."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from forked_command import Forked
from patience import RUN

AGENT = '''
import json, os, random, time, urllib.request

def ask(access, *messages):
    body = json.dumps({"model": access.model, "messages": messages}).encode()
    header = {"Authorization": "Bearer " + access.key, "Content-Type": "application/json"}
    request = urllib.request.Request(access.url + "/v1/chat/completions", body, header)
    return json.load(urllib.request.urlopen(request, timeout=600))["choices"][0]["message"]["content"]

def run(task, access):
    """Asks, asks back, and now and then begins anew; its pace is never the same."""
    asked = {"role": "user", "content": task.instruction}
    time.sleep(random.random() / 50)
    first = ask(access, asked)
    open("first.txt", "w").write(first)
    time.sleep(random.random() / 50)
    said = {"role": "assistant", "content": first}
    second = ask(access, asked, said, {"role": "user", "content": "Sure?"})
    if len(second) % 2:
        second = ask(access, {"role": "user", "content": "In short: " + second})
    return second
'''


class AgentJob:
    """A small run of an agent."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.folder, self.model = folder, model
        self.commands: list[Forked] = []
        (folder / "mine.py").write_text(AGENT)

    def start(self, name: str, *more: str) -> Forked:
        return self.command([*self.arguments(name), *more])

    def arguments(self, name: str) -> list[str]:
        text = (
            f"run --env gsm8k:dataset=embedded --reward proximity --agent python:{self.folder}/mine.py:run "
            f"--model {self.model} --steps 4 --max-completion-length 8 --prompts-per-step 2 --group-size 4 "
            f"--save-every 2 --eval-size 4 --lr 1e-3"
        )
        return [*text.split(), "--out", str(self.folder / name)]

    def command(self, arguments: list[str]) -> Forked:
        command = Forked(arguments, self.folder / f"said{len(self.commands)}")
        self.commands.append(command)
        return command

    def end(self) -> None:
        """Kills what is left."""
        for command in self.commands:
            if not command.ended:
                command.signal(signal.SIGKILL)
                command.wait(RUN)


def metrics(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if "time/" not in key and "seconds" not in key} for row in rows]
