"""Runs whose tasks are answered by a program: they repeat, survive a kill, and leave nothing running."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_command import Forked
from patience import RUN

pytestmark = pytest.mark.slow

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


class Job:
    """A small run of an agent."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.folder, self.model = folder, model
        self.commands: list[Forked] = []
        (folder / "mine.py").write_text(AGENT)

    def start(self, name: str, *more: str) -> Forked:
        text = (
            f"run --env gsm8k:dataset=embedded --reward proximity --agent python:{self.folder}/mine.py:run "
            f"--model {self.model} --steps 4 --max-completion-length 8 --prompts-per-step 2 --group-size 4 "
            f"--save-every 2 --eval-size 4 --lr 1e-3 --out {self.folder / name}"
        )
        return self.command([*text.split(), *more])

    def command(self, arguments: list[str]) -> Forked:
        command = Forked(arguments, self.folder / f"said{len(self.commands)}")
        self.commands.append(command)
        return command


@pytest.fixture(scope="module")
def job(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    job = Job(tiny_model, tmp_path_factory.mktemp("agents"))
    yield job
    for command in job.commands:
        if not command.ended:
            command.signal(signal.SIGKILL)
            command.wait(RUN)


@pytest.fixture(scope="module")
def undisturbed(job: Job) -> Path:
    command = job.start("undisturbed")
    assert command.wait(RUN) == 0, command.said
    return job.folder / "undisturbed"


def metrics(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if "time/" not in key and "seconds" not in key} for row in rows]


def rollouts(run: Path) -> list[list[tuple[int, ...]]]:
    from grpo.core.record.run_dir import RunDir, read_rollouts

    return [[tuple(row["token_ids"] or ()) for row in read_rollouts(RunDir(run), step)] for step in range(1, 5)]


def started_by(run: Path) -> list[int]:
    """The processes that are left of a run, by its agent's file in their command lines or folders."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                if str(run.parent).encode() in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
            except OSError:
                continue
    return found


def test_a_run_of_an_agent_repeats_whatever_its_pace(job: Job, undisturbed: Path) -> None:
    command = job.start("again")
    assert command.wait(RUN) == 0, command.said
    assert metrics(job.folder / "again") == metrics(undisturbed)
    assert rollouts(job.folder / "again") == rollouts(undisturbed)


@pytest.mark.core
def test_a_run_that_is_killed_among_its_episodes_resumes_to_the_same_numbers(job: Job, undisturbed: Path) -> None:
    command = job.start("killed")
    file = job.folder / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + RUN
    while not (file.exists() and '"step": 3,' in file.read_text()):
        assert not command.ended, command.said
        assert time.monotonic() < deadline, "the run never got there"
        time.sleep(0.002)
    command.signal(signal.SIGKILL)
    command.wait(RUN)
    resumed = job.command(["run", "--resume", str(job.folder / "killed")])
    assert resumed.wait(RUN) == 0, resumed.said
    assert metrics(job.folder / "killed") == metrics(undisturbed)
    assert started_by(job.folder / "killed") == []


def test_what_is_recorded_is_the_tree_that_trained(undisturbed: Path) -> None:
    from grpo.core.record.browse import read_step
    from grpo.core.record.run_dir import RunDir

    for one in read_step(RunDir(undisturbed), 1)[1]:
        agent = one.info["agent"]
        sampled = [call["sampled_tokens"] for call in agent["tree"]]
        assert agent["calls"] == len(sampled) == 1 + sum(agent["roots"].values())
        assert agent["tokens_trained"] == sum(sampled) == one.tokens
        assert set(one.info["files"]) == {"first.txt"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise SystemExit(3)", "never asked for one"),
        ("urllib.request.urlopen(access.url + '/v1/models')", "401"),
        ("ask(type(access)(access.url, access.key, 'x'), {'role': 'user', 'content': ''})", "there is no model"),
    ],
)
def test_an_agent_that_never_hears_the_policy_ends_the_run_with_the_reason(
    job: Job, body: str, says: str, tmp_path: Path
) -> None:
    broken = Job(job.model, tmp_path)
    (tmp_path / "mine.py").write_text(AGENT[: AGENT.index("    asked =")] + f"    {body}\n")
    command = broken.start("run", "--eval-size", "0")
    assert command.wait(RUN) == 1
    assert says in command.said, command.said
    assert "Traceback" not in command.said
