"""Runs whose tasks are answered by a program: they repeat, survive a kill, and leave nothing running."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sharded_command
from agent_job import AGENT, AgentJob, metrics
from forked_command import forked_together
from patience import RUN

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def job(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentJob]:
    job = AgentJob(tiny_model, tmp_path_factory.mktemp("agents"))
    yield job
    job.end()


@pytest.fixture(scope="module")
def undisturbed(job: AgentJob) -> Path:
    command = job.start("undisturbed")
    assert command.wait(RUN) == 0, command.said
    return job.folder / "undisturbed"


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


def test_a_run_of_an_agent_repeats_whatever_its_pace(job: AgentJob, undisturbed: Path) -> None:
    command = job.start("again")
    assert command.wait(RUN) == 0, command.said
    assert metrics(job.folder / "again") == metrics(undisturbed)
    assert rollouts(job.folder / "again") == rollouts(undisturbed)


def test_a_run_that_is_killed_among_its_episodes_resumes_to_the_same_numbers(job: AgentJob, undisturbed: Path) -> None:
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


def test_two_processes_have_a_gateway_each_and_the_run_repeats(job: AgentJob) -> None:
    rows = []
    for name in ("two", "two again"):
        forked_together([*job.arguments(name), "--eval-size", "0"], job.folder)
        rows.append(metrics(job.folder / name))
    assert rows[0] == rows[1]
    assert [row["agent/roots/first"] for row in rows[0]] == [1.0] * 4
    one, other = (rollouts(job.folder / name) for name in ("two", "two again"))
    assert one == other
    assert len(one[0]) == 8


@pytest.mark.nightly
@pytest.mark.parametrize("sharded", ["fsdp", pytest.param("zero3", marks=pytest.mark.deepspeed)])
def test_a_policy_that_two_processes_share_plays_as_one_that_each_has(job: AgentJob, sharded: str) -> None:
    sharding = sharded_command.FSDP if sharded == "fsdp" else sharded_command.zero(3, job.folder)
    process = sharded_command.command([*job.arguments(sharded), "--eval-size", "0"], sharding)
    said = process.communicate(timeout=RUN)[0]
    assert process.returncode == 0, said
    assert [row["agent/roots/first"] for row in metrics(job.folder / sharded)] == [1.0] * 4
    assert [len(step) for step in rollouts(job.folder / sharded)] == [8] * 4


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise SystemExit(3)", "never asked for one"),
        ("urllib.request.urlopen(access.url + '/v1/models')", "401"),
        ("ask(type(access)(access.url, access.key, 'x'), {'role': 'user', 'content': ''})", "there is no model"),
    ],
)
def test_an_agent_that_never_hears_the_policy_ends_the_run_with_the_reason(
    job: AgentJob, body: str, says: str, tmp_path: Path
) -> None:
    broken = AgentJob(job.model, tmp_path)
    (tmp_path / "mine.py").write_text(AGENT[: AGENT.index("    asked =")] + f"    {body}\n")
    command = broken.start("run", "--eval-size", "0")
    assert command.wait(RUN) == 1
    assert says in command.said, command.said
    assert "Traceback" not in command.said
