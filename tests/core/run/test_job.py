"""Whole runs through the command line: crash and resume, interruption, several processes, the default job."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from forked_command import Forked, forked_together
from patience import RUN
from same_metrics import timeless_metrics

from grpo.core.policy.load import policy_source
from grpo.plugins.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

REWARD = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def vowels(completion: str) -> float:
    return sum(letter in "aeiou" for letter in completion) / max(len(completion), 1)

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def patchy(completion: str) -> float:
    if sum(map(ord, completion)) % 10 == 0:
        raise ValueError("not this one")
    return float(sum(map(ord, completion)) % 10 == 1)
"""


@pytest.fixture
def small(tiny_model: Path, tmp_path: Path) -> list[str]:
    """Arguments of a run of eight short steps with a checkpoint every second one."""
    (tmp_path / "mine.py").write_text(REWARD)
    text = (
        f"run --env gsm8k:dataset=embedded,weight=3 --reward {tmp_path}/mine.py:vowels --model {tiny_model} --steps 8 "
        "--max-completion-length 12 --prompts-per-step 2 --group-size 4 --save-every 2 --eval-size 8 --eval-every 3 "
        "--lr 1e-3"
    )
    return text.split()


def here(arguments: Sequence[str]) -> None:
    """Runs the command in this process, which spares it the import of the libraries."""
    from grpo.core.cli.main import cli

    code = cli(list(arguments), standalone_mode=False)
    assert not code, code


def killed_at(arguments: Sequence[str], out: Path, step: int) -> None:
    """Starts the command in a process of its own and kills it once the step is recorded."""
    command = start_and_wait_for([*arguments, "--out", str(out)], out, step)
    command.signal(signal.SIGKILL)
    assert command.wait(RUN) == -signal.SIGKILL


def start_and_wait_for(arguments: Sequence[str], out: Path, step: int) -> Forked:
    command = Forked(arguments, out.with_suffix(".log"))
    deadline = time.monotonic() + RUN
    while f'"step": {step},' not in (out / "metrics.jsonl").read_text() if (out / "metrics.jsonl").exists() else True:
        assert not command.ended, command.said
        assert time.monotonic() < deadline, "the run never got there"
        time.sleep(0.02)
    return command


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("--env guess --env-reward guess environment --set loss.beta=0.1", marks=pytest.mark.core),
        "--lora --set loss.num_iterations=2 --set loss.beta=0.1",
        pytest.param("--lora --warmup-steps 3 --set loss.beta=0.1", marks=pytest.mark.nightly),
    ],
    ids=["several-environments", "lora-two-iterations", "lora-after-warm-up"],
)
def test_a_killed_run_resumes_to_bitwise_equal_metrics(
    settings: str, small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = [*small, *settings.split()]
    here([*arguments, "--out", str(whole)])
    killed_at(arguments, killed, step=5)
    here(["run", "--resume", str(killed)])
    assert "resuming after step 4" in capsys.readouterr().out
    assert timeless_metrics(killed) == timeless_metrics(whole)
    assert (killed / "model").is_dir()
    assert len(list((killed / "rollouts").glob("*.parquet"))) == len(list((whole / "rollouts").glob("*.parquet")))
    with pytest.raises(UsageError, match="complete"):
        here(["run", "--resume", str(killed)])


@pytest.fixture
def filled(small: list[str]) -> list[str]:
    """Arguments of a run whose reward fails, and tells few completions apart: its batches are filled up."""
    mine = [word.replace("mine.py:vowels", "mine.py:patchy") for word in small]
    return [*mine, *["--refill", "2", "--dynamic", "1.5", "--set", "failures.stop_share=0.9"]]


def sampled(run: Path, step: int, *, wasted: bool = False) -> list[dict[str, Any]]:
    from grpo.core.record.run_dir import RunDir, read_rollouts

    return read_rollouts(RunDir(run), step, wasted=wasted)


SAMPLER = ["--sampler", "curriculum:rest=1", "--limit", "6"]


@pytest.mark.parametrize(
    "more", [pytest.param([], marks=pytest.mark.nightly), SAMPLER], ids=["in the order of the run", "with a sampler"]
)
def test_a_killed_run_that_fills_its_batches_up_resumes_to_the_same_rollouts(
    more: list[str], filled: list[str], tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    here([*filled, *more, "--out", str(whole)])
    killed_at([*filled, *more], killed, step=5)
    here(["run", "--resume", str(killed)])
    rows = timeless_metrics(whole)
    assert timeless_metrics(killed) == rows
    assert max(row.get("sampling/wasted", 0.0) for row in rows) > 0
    for step in range(1, 9):
        assert sampled(killed, step) == sampled(whole, step)
        assert sampled(killed, step, wasted=True) == sampled(whole, step, wasted=True)


@pytest.mark.nightly
def test_processes_that_train_together_ask_the_prompts_that_one_asks(filled: list[str], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = [*filled, *SAMPLER, "--steps", "3", "--eval-size", "0"]
    here([*first, "--out", str(one)])
    forked_together([*first, "--out", str(two)], tmp_path)
    assert [row["prompt"] for row in sampled(two, 3)] == [row["prompt"] for row in sampled(one, 3)]


SPARING = """
from grpo import RowsSeen, reward, sampler

@sampler(version=1, fewer=True)
def rows(seen: RowsSeen, *, most: int = 1) -> list[int]:
    return sorted(range(seen.rows), key=lambda row: (row + seen.step) % seen.rows)[:most]

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def of_some(completion: str, question: str) -> float:
    return sum(map(ord, completion)) % 7 / 6 if sum(map(ord, question)) % 2 else 0.0
"""


def test_prompts_that_are_not_asked_change_a_step_as_groups_without_signal_do(small: list[str], tmp_path: Path) -> None:
    (tmp_path / "sparing.py").write_text(SPARING)
    asked = [word.replace("mine.py:vowels", "sparing.py:of_some") for word in small]
    asked += [
        "--steps",
        "3",
        "--eval-size",
        "0",
        "--loss",
        "grpo",
        "--lr",
        "1e-9",
        "--sampler",
        f"{tmp_path}/sparing.py:rows",
    ]
    few, whole, two = tmp_path / "few", tmp_path / "whole", tmp_path / "two"
    here([*asked, "--out", str(few)])
    here([*asked[:-1], f"{asked[-1]}:most=2", "--out", str(whole)])
    forked_together([*asked, "--out", str(two)], tmp_path)
    assert [len(sampled(few, step)) for step in (1, 2, 3)] == [4, 4, 4]
    assert [row["sampling/asked"] for row in timeless_metrics(few) if row["step"]] == [0.5] * 3
    told = [(row["step"], row["loss"], row["grad_norm"]) for row in timeless_metrics(few) if row["step"]]
    compared = 0
    for (step, loss, norm), other in zip(told, [row for row in timeless_metrics(two) if row["step"]], strict=True):
        assert (loss, norm) == (pytest.approx(other["loss"], abs=1e-6), pytest.approx(other["grad_norm"], rel=1e-3))
        second = sampled(whole, step)[4:]
        if len({row["reward"] for row in second}) == 1:  # its other group had no signal
            row = next(row for row in timeless_metrics(whole) if row["step"] == step)
            compared += norm > 0
            assert (loss, norm) == (pytest.approx(row["loss"], abs=1e-6), pytest.approx(row["grad_norm"], rel=1e-3))
    assert compared


def test_two_processes_fill_a_batch_up_as_one_does(filled: list[str], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = [*filled, "--steps", "1", "--eval-size", "0", "--prompts-per-step", "3"]  # a group is split among them
    here([*first, "--out", str(one)])
    forked_together([*first, "--out", str(two)], tmp_path)
    alone, shared = sampled(one, 1), sampled(two, 1)
    for first_row, second_row in zip(alone, shared, strict=True):  # other batches, so other rounding
        assert first_row.pop("logprobs") == pytest.approx(second_row.pop("logprobs"), abs=1e-4)
    assert shared == alone
    gone = [sorted((row["group"], row["completion"]) for row in sampled(run, 1, wasted=True)) for run in (one, two)]
    assert gone[0] == gone[1]
    assert gone[0]


def test_a_resumed_run_adds_to_its_events_and_says_nothing_of_tied_weights(
    small: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    tied = policy_source(None).path  # the embedded model
    arguments = [*small, "--model", tied, "--report-to", "tensorboard"]
    killed_at(arguments, out, step=3)
    library = logging.getLogger("transformers")
    library.addHandler(caplog.handler)
    try:
        here(["run", "--resume", str(out)])
    finally:
        library.removeHandler(caplog.handler)
    assert "lm_head" not in caplog.text
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    assert {event.step for event in events.Scalars("train/reward")} == set(range(1, 9))
    assert list((out / "checkpoints").glob("runs")) == []


def test_ctrl_c_saves_and_says_how_to_resume(small: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = start_and_wait_for([*small, "--save-every", "100", "--out", str(out)], out, step=3)
    command.signal(signal.SIGINT)
    assert command.wait(RUN) == 130
    assert f"grpo run --resume {out}" in command.said
    assert json.loads((out / "state.json").read_text())["status"] == "interrupted"
    assert len(list((out / "checkpoints").glob("checkpoint-*"))) == 1
    here(["run", "--resume", str(out)])
    assert [row["step"] for row in timeless_metrics(out)] == list(range(9))


def test_ctrl_c_ends_a_warm_up_and_a_second_one_is_no_failure(small: list[str], tmp_path: Path) -> None:
    for signals in (1, 2):
        out = tmp_path / f"run{signals}"
        command = Forked([*small, "--warmup-steps", "2000", "--out", str(out)], out.with_suffix(".log"))
        deadline = time.monotonic() + RUN
        while "worked answers" not in command.said:
            assert not command.ended, command.said
            assert time.monotonic() < deadline, "the warm-up never began"
            time.sleep(0.02)
        for _ in range(signals):
            command.signal(signal.SIGINT)
            time.sleep(0.1)
        assert command.wait(RUN) == 130, command.said
        assert f"stopped after step 0. Continue with: grpo run --resume {out}" in command.said
        assert json.loads((out / "state.json").read_text())["status"] == "interrupted"
        assert not (out / "warmup").exists()


@pytest.mark.core
def test_a_running_directory_is_not_resumed_by_another_process(small: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = start_and_wait_for([*small, "--steps", "200", "--out", str(out)], out, step=1)
    try:
        with pytest.raises(UsageError, match="still going"):
            here(["run", "--resume", str(out)])
    finally:
        command.signal(signal.SIGKILL)
        command.wait(RUN)


def test_a_resumed_run_reports_a_changed_reward_and_lost_checkpoints(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    killed_at(small, out, step=3)
    (tmp_path / "mine.py").write_text(REWARD + "\n# scores the same, but who knows\n")
    shutil.rmtree(out / "checkpoints")
    here(["run", "--resume", str(out)])
    warnings = capsys.readouterr().err
    assert "since the run started, reward 'vowels': its source has changed. Its metrics may" in warnings
    assert "recorded 3 steps, and none of its checkpoints is left. The steps are done again" in warnings
    assert [row["step"] for row in timeless_metrics(out)] == list(range(9))


def test_a_reward_that_fails_on_one_process_only_is_told_of_and_stops_all(small: list[str], tmp_path: Path) -> None:
    fails = "    if os.environ['RANK'] == '1':\n        raise ValueError('here')\n    return"
    (tmp_path / "mine.py").write_text("import os\n" + REWARD.replace("    return", fails))
    command = [*small, "--out", str(tmp_path / "run"), "--set", "failures.stop_share=0.4"]
    done = forked_together(command, tmp_path, code=1)
    assert done.stderr.count("warning: a reward failed; its completion is masked, never a zero.") == 1
    assert done.stderr.count("failed on 4 of 8 completions in step 1, over failures.stop_share 0.4") == 1
    assert f"`grpo show {tmp_path / 'run'} --failures` has them" in done.stderr
    assert "row 4: ValueError: here" in done.stderr  # of the batch of all processes
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "failed"


def test_a_full_disk_ends_with_one_line_and_a_run_that_resumes(small: list[str], tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk: the checkpoint's optimizer does not fit."""
    out = tmp_path / "run"
    limited = Forked([*small, "--out", str(out)], tmp_path / "said", largest_file=1 << 20)
    assert limited.wait(RUN) == 1, limited.said
    assert f"grpo run --resume {out}" in limited.said
    assert "Traceback" not in limited.said
    here(["run", "--resume", str(out)])
    assert [row["step"] for row in timeless_metrics(out)] == list(range(9))


def test_the_time_of_a_run_counts_held_out_accuracy_before_the_first_step(small: list[str], tmp_path: Path) -> None:
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.timing.timeline import HELD_OUT, timeline

    here([*small, "--out", str(tmp_path / "run")])
    rows = read_metrics(RunDir(tmp_path / "run"))
    measured = [row["time/held_out"] for row in rows if row.get("time/held_out")]
    assert [row["step"] for row in rows if row.get("time/held_out")] == [0, 3, 6, 8]
    assert timeline(rows, whole=True).parts[HELD_OUT] == pytest.approx(sum(measured))


@pytest.mark.parametrize(
    "how",
    [pytest.param([], marks=pytest.mark.core), pytest.param(["--lora"], marks=pytest.mark.nightly)],
    ids=["full", "lora"],
)
def test_the_default_job_learns_within_a_third_of_its_steps(
    how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its learning rate is constant, so these are its first steps; `make demo` takes all of them."""
    few = ["--steps", "20"]
    here(["run", "--env", "gsm8k", "--reward", "proximity", *how, *few, "--out", str(tmp_path / "run")])
    rows = timeless_metrics(tmp_path / "run")
    assert rows[0]["held_out/accuracy"] < 0.6
    assert rows[-1]["held_out/accuracy"] >= 0.95
    assert "embedded demonstration model" in capsys.readouterr().out
