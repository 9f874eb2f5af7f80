"""Runs of an agent with the real vLLM: they repeat, are sampled one batch ahead, and outlive kill -9."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_job import AgentJob, metrics
from engine_bench import REAL_VLLM
from patience import RUN

pytestmark = REAL_VLLM

AHEAD = ("--rollout", "vllm", "--ahead", "1", "--eval-size", "0")


@pytest.fixture(scope="module")
def job(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentJob]:
    job = AgentJob(tiny_model, tmp_path_factory.mktemp("agents"))
    yield job
    job.end()


def proven(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run whose rollouts came from the policy."""
    rows = [{key: value for key, value in row.items() if not key.startswith("sync/")} for row in metrics(run)]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert all(row["agent/calls"] >= 2 and row["agent/roots/first"] == 1 for row in rows)
    return rows


def test_a_run_that_is_sampled_ahead_and_killed_resumes_to_the_same_numbers(job: AgentJob) -> None:
    whole = job.start("whole", *AHEAD)
    assert whole.wait(RUN) == 0, whole.said
    assert [row["sampling/staleness"] for row in proven(job.folder / "whole")] == [0.0, 1.0, 1.0, 1.0]
    killed = job.start("killed", *AHEAD)
    file = job.folder / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + RUN
    while not (file.exists() and '"step": 3,' in file.read_text()):
        assert not killed.ended, killed.said
        assert time.monotonic() < deadline, "the run never got there"
        time.sleep(0.002)
    killed.signal(signal.SIGKILL)
    killed.wait(RUN)
    resumed = job.command(["run", "--resume", str(job.folder / "killed")])
    assert resumed.wait(RUN) == 0, resumed.said
    assert proven(job.folder / "killed") == proven(job.folder / "whole")
    assert json.loads((job.folder / "killed" / "state.json").read_text())["status"] == "done"
