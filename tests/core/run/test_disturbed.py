"""Runs that are disturbed from outside, or by their own plugins: each says so in a line, and goes on or resumes."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from forked_command import Forked
from patience import RUN
from same_metrics import timeless_metrics

pytestmark = pytest.mark.slow

HEAD = """
import atexit, gc, locale, logging, os, random, resource, signal, sys, threading, time, warnings
from grpo import reward

CALLS = 0

@reward(version=1, range=(0.0, 1.0), isolation="{isolation}")
def vowels(completion: str) -> float:
    global CALLS
    CALLS += 1
    {change}
    return sum(letter in "aeiou" for letter in completion) / max(len(completion), 1)
"""


class Job:
    """A small run and what it takes to start, disturb and resume it."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "run"
        self._model = model
        self._commands: list[Forked] = []
        self.reward()

    def reward(self, change: str = "pass", isolation: str = "inline") -> None:
        (self.folder / "mine.py").write_text(HEAD.format(change=change, isolation=isolation))

    def slow_steps(self) -> None:
        """Makes a step take 0.4 s or more, longer than a terminal waits before it is painted again."""
        self.reward("time.sleep(0.05)")

    def arguments(self, *more: str, out: Path | None = None) -> list[str]:
        text = (
            f"run --env gsm8k:dataset=embedded,weight=3 --reward {self.folder}/mine.py:vowels --model {self._model} "
            "--steps 6 --max-completion-length 8 --prompts-per-step 2 --group-size 4 --save-every 2 --eval-size 4 "
            f"--lr 1e-3 --out {out or self.out}"
        )
        return [*text.split(), *more]

    def start(self, arguments: Sequence[str], **how: Any) -> Forked:
        command = Forked(arguments, self.folder / f"said{len(self._commands)}", **how)
        self._commands.append(command)
        return command

    def run(self, *more: str, code: int = 0, out: Path | None = None, **how: Any) -> str:
        command = self.start(self.arguments(*more, out=out), **how)
        assert command.wait(RUN) == code, command.said
        return self.checked(command)

    def resume(self, code: int = 0) -> str:
        command = self.start(["run", "--resume", str(self.out)])
        assert command.wait(RUN) == code, command.said
        return self.checked(command)

    def checked(self, command: Forked) -> str:
        assert "Traceback" not in command.said
        return command.said

    def until(self, command: Forked, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + RUN
        while not reached():
            assert not command.ended, command.said
            assert time.monotonic() < deadline, "the run never got there"
            time.sleep(0.002)

    def until_step(self, command: Forked, step: int) -> None:
        file = self.out / "metrics.jsonl"
        self.until(command, lambda: file.exists() and f'"step": {step},' in file.read_text())

    def stop(self) -> None:
        for command in self._commands:
            if not command.ended:
                command.signal(signal.SIGKILL)
                command.wait(RUN)


@pytest.fixture
def job(tiny_model: Path, tmp_path: Path) -> Iterator[Job]:
    job = Job(tiny_model, tmp_path)
    yield job
    job.stop()


@pytest.fixture(scope="module")
def undisturbed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run without any disturbance."""
    job = Job(tiny_model, tmp_path_factory.mktemp("undisturbed"))
    job.run()
    return job.out


def checkpoint(job: Job, step: int) -> Path:
    return job.out / "checkpoints" / f"checkpoint-{step}"


# Signals.


# SIGHUP comes from a terminal that is closed, below.
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, id="SIGINT"), pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.nightly)],
)
def test_a_signal_ends_the_step_and_the_run_resumes_as_if_nothing_had_been(
    number: signal.Signals, job: Job, undisturbed: Path
) -> None:
    job.slow_steps()
    command = job.start(job.arguments("--save-every", "100"))
    job.until_step(command, 3)
    command.signal(number)
    assert command.wait(RUN) == 130
    said = job.checked(command)
    assert "stopping after this step, in a state that resumes" in said
    assert f"Continue with: grpo run --resume {job.out}" in said
    job.resume()
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


def test_a_terminal_that_was_closed_stops_the_run_and_it_resumes(job: Job, undisturbed: Path) -> None:
    """Its signal comes, and whatever is written from then on fails."""
    job.slow_steps()
    terminal, side = os.openpty()
    command = job.start(job.arguments(), output=os.ttyname(side), session=True)
    read_until(terminal, rb"step [1-3]/")
    os.close(side)
    os.close(terminal)  # the kernel sends SIGHUP, and writes fail with EIO
    assert command.wait(RUN) == 130
    assert json.loads((job.out / "state.json").read_text())["status"] == "interrupted"
    job.resume()
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


def read_until(terminal: int, mark: bytes) -> None:
    """Reads until the pattern has come by."""
    seen = b""
    deadline = time.monotonic() + RUN
    while not re.search(mark, seen):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, seen[-2000:]
        seen += os.read(terminal, 1 << 16)


def test_a_signal_before_the_first_step_ends_the_run_at_once(job: Job, undisturbed: Path) -> None:
    command = job.start(job.arguments())
    job.until(command, lambda: "loading the model" in command.said)
    command.signal(signal.SIGTERM)
    assert command.wait(RUN) == 130
    said = job.checked(command)
    assert f"stopped after step 0. Continue with: grpo run --resume {job.out}" in said
    job.resume()
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


def test_a_second_ctrl_c_during_a_checkpoint_says_what_is_lost(job: Job, undisturbed: Path) -> None:
    command = job.start(job.arguments("--save-every", "4"))
    job.until(command, checkpoint(job, 4).is_dir)
    command.signal(signal.SIGINT)
    command.signal(signal.SIGINT)
    code = command.wait(RUN)
    said = job.checked(command)
    assert code == 130
    if not (checkpoint(job, 4) / "complete.json").is_file():
        assert "steps 1 to 4 will be done again when the run resumes: there is no complete checkpoint yet." in said
    job.resume()
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


@pytest.mark.parametrize(
    "what",
    [
        "checkpoints/checkpoint-4/optimizer.pt",
        pytest.param("rollouts/step-000004.parquet", marks=pytest.mark.nightly),
    ],
)
def test_kill_9_while_a_file_is_written_loses_only_what_follows_the_last_checkpoint(
    what: str, job: Job, undisturbed: Path
) -> None:
    command = job.start(job.arguments())
    file = job.out / what
    unfinished = file.with_name(f".{file.name}.unfinished")
    job.until(command, lambda: file.exists() or unfinished.exists())
    command.signal(signal.SIGKILL)
    command.wait(RUN)
    job.resume()
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


# Outputs.


def test_a_full_stdout_is_told_of_on_stderr_and_the_run_goes_on(job: Job, undisturbed: Path) -> None:
    said = job.run(output="/dev/full")
    assert said.count("the output cannot be written any more: No space left on device. The run continues") == 1
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


def test_a_reader_that_went_away_is_told_of_and_the_run_goes_on(job: Job, undisturbed: Path) -> None:
    pipe = job.folder / "pipe"
    os.mkfifo(pipe)
    command = job.start(job.arguments(), output=str(pipe))
    reader = os.open(pipe, os.O_RDONLY)
    read_until(reader, b"step 1")
    os.close(reader)
    assert command.wait(RUN) == 0
    assert "the output cannot be written any more: Broken pipe. The run continues" in job.checked(command)
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


def test_closed_standard_streams_keep_nothing_from_being_written(job: Job, undisturbed: Path) -> None:
    job.run(closed=(0, 1, 2))
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


# The run directory.


def remove(folder: Path) -> None:
    """Removes a folder at once: file by file, the run would write into what is half gone."""
    gone = folder.with_name("gone")
    folder.rename(gone)
    shutil.rmtree(gone)


def replace_by_a_file(folder: Path) -> None:
    """Puts a file where the folder was, however often the run makes it again in between."""
    while not folder.is_file():
        if folder.is_dir():
            remove(folder)
        with suppress(IsADirectoryError):
            folder.write_text("another thing")


def test_a_removed_run_directory_is_made_again_and_resumes(job: Job) -> None:
    command = job.start(job.arguments("--steps", "40", "--save-every", "100"))
    job.until_step(command, 3)
    remove(job.out)
    job.until(command, lambda: bool(list((job.out / "checkpoints").glob("*/complete.json"))))
    command.signal(signal.SIGINT)
    assert command.wait(RUN) == 130
    said = job.checked(command)
    assert said.count(f"{job.out} was removed or moved during the run, with its records so far") == 1
    assert "done after step 40" in job.resume()
    steps = [row["step"] for row in timeless_metrics(job.out)]
    assert steps == list(range(steps[0], 41))


def test_a_removed_run_directory_that_cannot_be_made_again_is_a_line(job: Job) -> None:
    command = job.start(job.arguments("--steps", "40", "--save-every", "100"))
    job.until_step(command, 2)
    replace_by_a_file(job.out)
    assert command.wait(RUN) == 1
    assert f"the run directory {job.out} was removed, or cannot be reached any more" in job.checked(command)


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("optimizer.pt", "trainer_state.json")),
        pytest.param("rng_state.pth", marks=pytest.mark.nightly),
    ],
)
def test_a_flipped_bit_in_the_newest_checkpoint_and_the_one_before_goes_on(
    name: str, job: Job, undisturbed: Path
) -> None:
    shutil.copytree(undisturbed, job.out)
    shutil.rmtree(job.out / "model")
    file = checkpoint(job, 6) / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    said = job.resume()
    assert "resuming after step 4" in said
    assert f"{file.parent} was damaged and is passed over: {name} is not what was written" in said
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


def test_files_of_models_have_ordinary_modes(undisturbed: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    files = [file for file in undisturbed.rglob("*") if file.is_file()]
    assert any(file.name == "model.safetensors" for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o666 & ~umask}


def test_a_disk_that_is_full_at_a_checkpoint_is_a_line_and_the_run_resumes(job: Job, undisturbed: Path) -> None:
    said = job.run(code=1, largest_file=1 << 20)
    assert "steps 1 to 2 will be done again when the run resumes: there is no complete checkpoint yet." in said
    assert f"Free some space, then continue with: grpo run --resume {job.out}" in said
    assert "starting again: there is no complete checkpoint yet" in job.resume()
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


# Plugins in this process.

CHANGES_THE_PROCESS = (
    "os.chdir('/')",
    "os.umask(0o777)",
    "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))",
    "locale.setlocale(locale.LC_ALL, 'C')",
    "sys.setrecursionlimit(250)",
    "gc.disable()",
    "warnings.simplefilter('error')",
)
IGNORES_CTRL_C = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
MISCHIEF: tuple[dict[str, str], ...] = (  # what does not hinder each other happens in one run
    {
        "changes the process": "; ".join(CHANGES_THE_PROCESS),
        "becomes another process of a launcher": "os.environ.update(RANK='1', WORLD_SIZE='2')",
        "forks": "CALLS == 1 and os.fork()",
    },
    {
        "changes torch": "import torch; torch.set_grad_enabled(False); torch.set_default_dtype(torch.float64)",
        "seeds every generator": "torch.manual_seed(0); random.seed(0)",
        "leaves a thread behind": "CALLS == 1 and threading.Thread(target=time.sleep, args=(600,)).start()",
        "replaces stdout": "sys.stdout = None; sys.stderr = None",
    },
    {
        "ignores Ctrl-C and sets an alarm": f"{IGNORES_CTRL_C}; signal.setitimer(signal.ITIMER_REAL, 0.2)",
        "logs everything": "logging.basicConfig(level=logging.DEBUG, force=True)",
        "closes stdout": "sys.stdout.close()",
    },
    {"prints 100 MB": "print('x' * (2 << 20) if CALLS < 50 else '')"},
)


@pytest.mark.parametrize("kinds", MISCHIEF, ids=", ".join)
def test_what_a_reward_in_this_process_does_to_it_changes_no_number(
    kinds: dict[str, str], job: Job, undisturbed: Path
) -> None:
    job.reward("; ".join(kinds.values()))
    said = job.run()
    assert "done after step 6" in said
    assert len(said) < 3 << 20
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)
    umask = os.umask(0)
    os.umask(umask)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in job.out.rglob("*") if file.is_file()}
    assert modes == {0o666 & ~umask}


def test_a_reward_in_a_worker_prints_no_more_than_can_be_read(job: Job, undisturbed: Path) -> None:
    job.reward("print('x' * (2 << 20)); sys.stderr.write('y' * (2 << 20))", isolation="process")
    said = job.run()
    assert "more than 1 MiB was printed" in said
    assert len(said) < 20 << 20
    assert timeless_metrics(job.out) == timeless_metrics(undisturbed)


def test_ctrl_c_is_heard_although_a_reward_ignores_it(job: Job) -> None:
    job.reward(IGNORES_CTRL_C)
    command = job.start(job.arguments("--steps", "400"))
    job.until_step(command, 3)
    time.sleep(0.3)
    deadline = time.monotonic() + RUN
    while not command.ended and time.monotonic() < deadline:
        command.signal(signal.SIGINT)
        time.sleep(0.5)
    assert command.wait(RUN) == 130
    assert "handlers of signals" in job.checked(command)


def test_the_batch_whose_scores_overflow_is_on_record(job: Job) -> None:
    import pyarrow.parquet as pq

    (job.folder / "mine.py").write_text(
        "from grpo import reward\n\n@reward(version=1)\ndef vowels(completion: str) -> float:\n"
        "    return 1e300 * (sum(map(ord, completion)) % 3)\n"
    )
    said = job.run(code=1)
    assert said.count("the rewards of a step overflow: the largest score is 2e+300") == 1
    rows = pq.read_table(job.out / "rollouts" / "step-000001.parquet").to_pylist()
    assert max(row["score.vowels"] for row in rows) == 2e300
