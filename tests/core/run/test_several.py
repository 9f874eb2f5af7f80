"""Several processes are one run: the same rollouts for any number of them, one end, and a run that resumes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from disturbed_ranks import REWARD, Ranks
from forked_command import Forked, forked_together, started_together
from patience import RUN, wait_for
from same_metrics import timeless_metrics

from grpo.core.record.run_dir import RunDir
from grpo.core.record.trained import read_trained

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def arguments(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments of a run of eight short steps with a checkpoint every second one."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "mine.py").write_text(REWARD)
    text = (
        f"run --env gsm8k:dataset=embedded --reward {folder}/mine.py:vowels --model {tiny_model} --steps 8 --lr 1e-3 "
        "--max-completion-length 10 --prompts-per-step 2 --group-size 4 --save-every 2 --eval-size 8 --eval-every 4"
    )
    return text.split()


@pytest.fixture(scope="module")
def two(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in two processes, undisturbed."""
    out = tmp_path_factory.mktemp("two") / "run"
    done = forked_together([*arguments, "--out", str(out)], out.parent)
    for line in ("done after step 8", "loading the model", "held-out accuracy after 8 steps", "step 3 "):
        assert done.stdout.count(line) == 1
    assert "Warning" not in done.stderr
    assert [line for line in done.stderr.splitlines() if done.stderr.count(line) > 1] == []
    return out


def rollouts(run: Path, step: int) -> list[tuple[str, str]]:
    import pyarrow.parquet as pq

    rows = pq.read_table(run / "rollouts" / f"step-{step:06d}.parquet").to_pylist()
    return [(json.dumps(row["prompt"]), row["completion"]) for row in rows]


def close(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Asserts that metrics agree to rounding; the loss is next to nothing on policy, and its rounding is not."""
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    for mine, other in zip(found, expected, strict=True):
        for key in ("reward", "grad_norm", "loss", "accuracy", "completions/mean_length", "held_out/accuracy"):
            if key in other:
                assert mine[key] == pytest.approx(other[key], rel=1e-4, abs=1e-6), (mine["step"], key)


def alone(arguments: Sequence[str], tmp_path: Path) -> None:
    command = Forked(arguments, tmp_path / f"said{time.monotonic_ns()}")
    assert command.wait(RUN) == 0, command.said


def test_one_two_and_four_processes_sample_and_learn_the_same(arguments: list[str], two: Path, tmp_path: Path) -> None:
    one, four, small, few = tmp_path / "one", tmp_path / "four", tmp_path / "small", [*arguments, "--steps", "3"]
    alone([*few, "--eval-size", "0", "--out", str(one)], tmp_path)
    alone([*few, "--eval-size", "0", "--out", str(small), "--set", "rollout.batch_size=3"], tmp_path)
    forked_together([*few, "--eval-size", "0", "--out", str(four)], tmp_path, processes=4)
    for other in (two, four, small):
        for step in range(1, 4):
            assert rollouts(other, step) == rollouts(one, step)
            theirs, ours = (read_trained(RunDir(run), step) for run in (other, one))
            assert {row: list(each.advantages) for row, each in theirs.items()} == {
                row: pytest.approx(list(each.advantages), abs=1e-3) for row, each in ours.items()
            }
        close([row for row in timeless_metrics(other) if 0 < row["step"] < 4], timeless_metrics(one))
    assert len({text for step in range(1, 4) for _, text in rollouts(one, step)}) > 16


def test_a_run_goes_on_with_another_number_of_processes(arguments: list[str], two: Path, tmp_path: Path) -> None:
    """Two, then one, then four of them."""
    out = tmp_path / "run"
    shutil.copytree(two, out)

    def lose(last: int) -> list[str]:
        shutil.rmtree(out / "model")
        for checkpoint in (out / "checkpoints").iterdir():
            if int(checkpoint.name.removeprefix("checkpoint-")) > last:
                shutil.rmtree(checkpoint)
        return ["run", "--resume", str(out)]

    def goes_on() -> None:
        close(timeless_metrics(out), timeless_metrics(two))
        assert [rollouts(out, step) for step in range(1, 9)] == [rollouts(two, step) for step in range(1, 9)]

    alone(lose(4), tmp_path)
    goes_on()
    done = forked_together(lose(6), tmp_path, processes=4)
    goes_on()
    assert (
        done.stdout.count("the processes of this run were 2, and are 4 now: metrics continue up to rounding; micro")
        == 1
    )
    assert "trainer_state.json" not in done.stderr, "what transformers makes of other micro batches"


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_all_with_one_line_and_the_run_resumes(
    rank: int, arguments: list[str], two: Path, tmp_path: Path, ranks: list[Ranks]
) -> None:
    disturbed = Ranks([*arguments, "--out", str(tmp_path / "run")], tmp_path / "run")
    ranks.append(disturbed)
    disturbed.until_step(5)
    os.kill(disturbed.processes()[rank], signal.SIGKILL)
    disturbed.ended_within(RUN)
    assert disturbed.said.count(f"grpo: process {rank} of 2 ended without a message: it was killed") == 1
    assert disturbed.said.count("grpo: ") == 1
    assert "Traceback" not in disturbed.said.split("torch/distributed/run.py")[0].rsplit("Traceback", 1)[0]
    assert not (tmp_path / "run" / "model").exists()
    if rank == 0:  # from either, the random moments below
        done = forked_together(["run", "--resume", str(tmp_path / "run")], tmp_path)
        assert done.stdout.count("resuming after step 4") == 1
        assert timeless_metrics(tmp_path / "run") == timeless_metrics(two)


def test_a_stop_of_one_process_is_a_stop_of_all_after_the_same_step(
    arguments: list[str], two: Path, tmp_path: Path
) -> None:
    stopped = started_together([*arguments, "--save-every", "100", "--out", str(tmp_path / "run")], tmp_path)
    told = tmp_path / "run" / "metrics.jsonl"
    assert wait_for(lambda: told.exists() and '"step": 3,' in told.read_text(), RUN)
    stopped[1].signal(signal.SIGTERM)
    assert [one.wait(RUN) for one in stopped] == [130, 130]
    said = "".join(one.printed + one.said for one in stopped)
    assert said.count("Continue with: grpo run --resume") == 1
    assert "grpo: " not in said
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "interrupted"
    assert not (tmp_path / "run" / "model").exists()
    forked_together(["run", "--resume", str(tmp_path / "run")], tmp_path)
    assert timeless_metrics(tmp_path / "run") == timeless_metrics(two)


def test_what_all_processes_refuse_is_said_once(arguments: list[str], tmp_path: Path) -> None:
    early = forked_together(["run", "--env", "gsm8k", "--steps", "none"], tmp_path, code=2)
    assert early.stderr.count("Invalid value for '--steps'") == 1
    late = forked_together([*arguments, "--group-size", "3", "--prompts-per-step", "1"], tmp_path, code=2)
    assert late.stderr.count("grpo: 1 prompts x 3 completions = 3 cannot be shared by 2 processes") == 1


def disturbed_at_random(arguments: list[str], out: Path, ranks: list[Ranks], kills: int, draw: random.Random) -> None:
    """Runs, kills a process of the run or a scoring worker at a random moment, and resumes, until the run is over."""
    command = [*arguments, "--out", str(out)]
    for number in range(kills):
        run = Ranks(command, out)
        ranks.append(run)
        run.until_step(number)
        time.sleep(draw.uniform(0.0, 0.8))
        victims = run.workers() if draw.random() < 0.3 else list(run.processes().values())
        if victims:
            os.kill(draw.choice(victims), signal.SIGKILL)
        run.launcher.wait(RUN)
        assert not run.processes()
        if (out / "model").exists():  # a worker was replaced, or the process was done
            return
        command = ["run", "--resume", str(out)] if (out / "config.json").exists() else command
    forked_together(command, out.parent)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12))
def test_many_kills_at_random_moments_change_no_number(
    seed: int, arguments: list[str], two: Path, tmp_path: Path, ranks: list[Ranks]
) -> None:
    disturbed_at_random(arguments, tmp_path / "run", ranks, 5, random.Random(seed))
    assert timeless_metrics(tmp_path / "run") == timeless_metrics(two)
