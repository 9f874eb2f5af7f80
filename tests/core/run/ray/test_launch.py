"""A run on a real cluster of two nodes: it learns, it outlives a node that scores, it resumes after one that trains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import RUN
from same_metrics import metrics_of

pytestmark = [pytest.mark.ray, pytest.mark.slow]

REWARD = """
import os, time
from grpo import reward

@reward(version=1, range=(0.0, 1.0))
def near(completion: str, answer: str) -> float:
    time.sleep(0.01)
    return float(answer.rpartition("####")[2].strip() in completion)
"""


def command(address: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "grpo", "run", *map(str, arguments), "--on", "ray", "--ray-address", address]


SMALL = ("--eval-size", "0", "--prompts-per-step", "4", "--group-size", "4")


def started(address: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(address, "--env", "gsm8k", "--set", "output.save_every=2", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """Waits for the end of a command; returns what it said."""
    try:
        return process.communicate(timeout=RUN)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"still going: {process.communicate()[0]}")


def wait_for_step(step: int, run: Path, process: subprocess.Popen[str]) -> None:
    """Waits until a run has made a step, or has ended without it, which fails."""
    until = time.monotonic() + RUN
    while time.monotonic() < until and process.poll() is None:
        if (run / "metrics.jsonl").is_file() and f'"step": {step},' in (run / "metrics.jsonl").read_text():
            return
        time.sleep(0.2)
    process.kill()
    pytest.fail(f"no step {step}: {process.communicate()[0]}")


def status(run: Path) -> str:
    return str(json.loads((run / "state.json").read_text())["status"])


def test_a_run_of_two_processes_on_two_nodes_learns(ray_address: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = started(
        *(ray_address, "--workers", "2", "--nodes", "2", "--steps", "20", "--reward", "proximity", "--out", run),
        *("--eval-size", "40"),
    )
    output = ended(process)
    assert process.returncode == 0, output
    assert "processes: 1 that trains, 1 that scores" in output
    assert "step 20 " in output
    accuracy = [row["held_out/accuracy"] for row in metrics_of(run) if "held_out/accuracy" in row]
    assert accuracy[-1] > accuracy[0]
    assert status(run) == "done"
    assert (run / "model").is_dir()


@pytest.mark.nightly
def test_a_node_that_scores_is_removed_and_the_run_goes_on(
    ray_address: str, further_node: Callable[[int], Callable[[], None]], tmp_path: Path
) -> None:
    run, reward = tmp_path / "run", tmp_path / "mine.py"
    reward.write_text(REWARD)
    remove = further_node(2)
    process = started(ray_address, *SMALL, "--steps", "6", "--reward", f"{reward}:near", "--out", run)
    wait_for_step(2, run, process)
    remove()
    output = ended(process)
    assert process.returncode == 0, output
    assert "node 3" in output
    assert [row["step"] for row in metrics_of(run) if "loss" in row] == [1, 2, 3, 4, 5, 6]
    assert not any(value for row in metrics_of(run) for name, value in row.items() if name.endswith("/failed"))


def test_a_node_that_trains_is_removed_and_the_run_ends_and_says_how_to_resume(
    ray_address: str, further_node: Callable[[int], Callable[[], None]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    remove = further_node(4)  # the one with the most processors trains
    process = started(ray_address, *SMALL, "--steps", "500", "--reward", "proximity", "--out", run)
    wait_for_step(2, run, process)
    remove()
    output = ended(process)
    assert process.returncode == 1, output
    assert "a training process was lost, which ended the run" in output
    assert f"grpo run --resume {run} --on ray" in output


@pytest.mark.nightly
def test_ctrl_c_ends_the_step_and_everything_and_the_run_resumes(ray_address: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = started(ray_address, *SMALL, "--steps", "500", "--reward", "proximity", "--out", run)
    wait_for_step(1, run, process)
    process.send_signal(signal.SIGINT)
    output = ended(process)
    assert process.returncode == 130, output
    assert status(run) == "interrupted"
    done = metrics_of(run)[-1]["step"]
    again = subprocess.run(
        command(ray_address, "--resume", run, "--steps", str(int(done) + 1)),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert status(run) == "done"
    assert metrics_of(run)[-1]["step"] == done + 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workers", "9"), "--workers 9 does not fit: the cluster has 2 nodes"),
        (("--reward", "nonsense"), "no reward 'nonsense'"),
        (("--group-size", "7", "--prompts-per-step", "1", "--workers", "2"), "7 cannot be shared by 2 processes"),
    ],
    ids=["too many", "no such reward", "not divisible"],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    ray_address: str, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    reward = () if "--reward" in arguments else ("--reward", "proximity")
    process = started(ray_address, *arguments, *reward, "--out", tmp_path / "run")
    output = ended(process)
    assert process.returncode == 2, output
    assert words in output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("variables", "words"),
    [({"RAY_AUTH_TOKEN": "another" * 6}, "or it refused the token of this one"), ({}, "cannot reach a Ray cluster at")],
    ids=["wrong token", "no cluster"],
)
def test_a_cluster_that_cannot_be_used_is_an_error_that_says_how_to_start_one(
    ray_address: str, variables: dict[str, str], words: str
) -> None:
    address = ray_address if variables else "127.0.0.1:9"
    done = subprocess.run(
        command(address, "--env", "gsm8k", "--reward", "proximity"),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN,
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "ray get-auth-token --generate" in done.stderr
