"""The run directory: everything that a run leaves behind, written so that kill -9 at any moment loses nothing.

    config.json         the resolved configuration; `grpo run --config` reads it too
    versions.json       versions of python and of the libraries, and the lock of every plugin
    state.json          status, process id, last step
    metrics.jsonl       one object per step
    rollouts/           step-000001.parquet: one row per completion
    base/               the weights that it began with, where another run had trained them
    warmup/             the policy after the supervised steps, if there were any
    checkpoints/        checkpoint-20/, whole once it holds complete.json
    model/              the final model or adapter, with its tokenizer
    reward.png          the curves
    canaries.json       what the canaries scored at the start, if there are any
    tensorboard/        the metrics as TensorBoard's events, where asked for

Files appear whole: written under another name, synced, renamed. metrics.jsonl is appended and synced line by line; a
half line at its end is dropped when the run resumes, as is everything after the checkpoint it resumes from.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo.core.text.printable import encodable
from grpo.plugins.errors import UsageError

COMPLETE = "complete.json"
ORIGIN = "origin.json"  # beside weights that a run begins with: which run they are from
STEP_FILE = "step-{:06d}.parquet"


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One recorded completion.

    Attributes:
        step: the optimizer step that it was sampled for, from 1.
        group: number of its group within the step.
        prompt: chat messages, as JSON.
        completion: the text.
        tokens: how many were sampled.
        finish_reason: "stop" or "length".
        columns: the row that the rewards read, as JSON.
        reward: the weighted total, or None.
        advantage: what it was trained with; 0.0 for failed completions.
        outcomes: name to (outcome, score, reason) of each reward that is for its environment.
        messages: the turns of a rollout whose environment was stepped, as JSON; None: `completion` is all.
        info: what the environment reported in such a rollout, as JSON.
        env: the environment, as the run names it.
    """

    step: int
    group: int
    prompt: str
    completion: str
    tokens: int
    finish_reason: str
    columns: str
    reward: float | None
    advantage: float
    outcomes: Mapping[str, tuple[str, float | None, str | None]]
    messages: str | None = None
    info: str | None = None
    env: str = ""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The files of one run, by name."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def versions(self) -> Path:
        return self.path / "versions.json"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def events(self) -> Path:
        return self.path / "tensorboard"

    @property
    def base(self) -> Path:
        return self.path / "base"

    @property
    def warmup(self) -> Path:
        return self.path / "warmup"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def canaries(self) -> Path:
        return self.path / "canaries.json"

    @property
    def plot(self) -> Path:
        return self.path / "reward.png"


def create_run_dir(path: Path, config: Mapping[str, Any], versions: Mapping[str, Any]) -> RunDir:
    """Makes a new run directory.

    Raises:
        UsageError: it cannot be made.
    """
    run = RunDir(path)
    try:
        for folder in (run.rollouts, run.checkpoints):
            folder.mkdir(parents=True)
        write_json(run.versions, versions)
        write_json(run.config, config)
    except OSError as error:
        raise UsageError(
            f"cannot write the run directory {path}: {error.strerror}. Choose another with --out."
        ) from None
    return run


def is_run(folder: Path) -> bool:
    """True for a run directory; a model's folder has a config.json too, but no versions.json."""
    return (folder / "config.json").is_file() and (folder / "versions.json").is_file()


def open_run_dir(path: Path) -> RunDir:
    """Opens an existing run directory.

    Raises:
        UsageError: it does not hold a run.
    """
    if not is_run(path):
        what = "is not a run directory: it has no config.json and versions.json" if path.exists() else "does not exist"
        raise UsageError(f"{path} {what}. List the runs with: grpo runs")
    return RunDir(path)


@contextmanager
def exclusive(run: RunDir) -> Iterator[None]:
    """Holds the run directory for this process; the system lets go of it however the process ends.

    Raises:
        UsageError: another process holds it.
    """
    try:
        file = run.lock.open("a")
    except OSError as error:
        raise UsageError(
            f"cannot write in {run.path}: {error.strerror}. Copy the run to where you may write."
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{run.path} is in use by a run that is still going. Stop that one first.") from None
        yield


def in_use(run: RunDir) -> bool:
    """True while a process runs in the directory, which need not be writable."""
    if not run.lock.is_file():
        return False
    with run.lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file that is either whole or not there."""
    with whole_file(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Reads a JSON file; None when it does not exist.

    Raises:
        UsageError: it holds something else.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}. Mend it, or start a new run.") from None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a name to write to; renames it to `path` once it is synced, removes it when the writer fails."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        yield unfinished
        _sync(unfinished)
        unfinished.replace(path)
        _sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields a folder to fill; puts it in the place of `path` once its files are synced."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        for file in unfinished.rglob("*"):
            _sync(file)
        shutil.rmtree(path, ignore_errors=True)
        unfinished.replace(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def append_metrics(run: RunDir, row: Mapping[str, Any]) -> None:
    """Appends one step to metrics.jsonl and syncs it."""
    with run.metrics.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_metrics(run: RunDir) -> list[dict[str, Any]]:
    """Reads metrics.jsonl without a half line at its end.

    Raises:
        UsageError: another line of it was damaged.
    """
    if not run.metrics.is_file():
        return []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(run.metrics.read_text(encoding="utf-8").splitlines(keepends=True), start=1):
        try:
            rows += [json.loads(line)] if line.endswith("\n") else []
        except ValueError as error:
            raise UsageError(f"{run.metrics}, line {number}, was damaged: {error}. Remove that line.") from None
    return rows


def write_rollouts(run: RunDir, step: int, rows: Sequence[RolloutRow]) -> None:
    """Writes the completions of one step as one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain: tuple[str, ...] = ("step", "group", "prompt", "completion", "tokens", "finish_reason", "columns")
    plain += ("messages", "info", "reward", "advantage", "env")
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in plain}
    types: dict[str, Any] = {"reward": pa.float64(), "advantage": pa.float64()}
    types |= {"messages": pa.string(), "info": pa.string()}
    for name in dict.fromkeys(name for row in rows for name in row.outcomes):
        for position, part in enumerate(("outcome", "score", "reason")):
            columns[f"{part}.{name}"] = [row.outcomes.get(name, (None, None, None))[position] for row in rows]
            types[f"{part}.{name}"] = pa.float64() if part == "score" else pa.string()
    written = {key: [encodable(one) if isinstance(one, str) else one for one in own] for key, own in columns.items()}
    table = pa.table({key: pa.array(values, type=types.get(key)) for key, values in written.items()})
    with whole_file(run.rollouts / STEP_FILE.format(step)) as unfinished:
        pq.write_table(table, unfinished)


def rollout_steps(run: RunDir) -> list[int]:
    """Returns the steps that have recorded rollouts, ascending."""
    return sorted(int(file.stem.removeprefix("step-")) for file in run.rollouts.glob("step-*.parquet"))


def read_rollouts(run: RunDir, step: int) -> list[dict[str, Any]]:
    """Reads the completions of one step.

    Raises:
        UsageError: the step has none, or its file was damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = run.rollouts / STEP_FILE.format(step)
    if not file.is_file():
        steps = rollout_steps(run)
        have = f"it has steps {steps[0]} to {steps[-1]}" if steps else "it has none yet"
        raise UsageError(f"{run.path} has no rollouts of step {step}; {have}.")
    try:
        rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{file} was damaged: {str(error).splitlines()[0]} Choose another --step.") from None
    return rows


def checkpoint_step(folder: Path) -> int:
    """Returns the step in a checkpoint's name."""
    return int(folder.name.rpartition("-")[2])


def mark_complete(folder: Path) -> None:
    """Declares a checkpoint whole, after syncing its files, and notes their sizes."""
    for file in folder.rglob("*"):
        _sync(file)
    write_json(folder / COMPLETE, {"step": checkpoint_step(folder), "bytes": _sizes(folder)})


def last_checkpoint(run: RunDir) -> Path | None:
    """Returns the newest whole checkpoint, or None; one that lost a file, or part of one, is none."""
    return max(filter(_is_whole, run.checkpoints.glob("checkpoint-*")), key=checkpoint_step, default=None)


def _is_whole(folder: Path) -> bool:
    if not (folder / COMPLETE).is_file():
        return False
    try:
        noted, found = read_json(folder / COMPLETE).get("bytes", {}), _sizes(folder)
    except FileNotFoundError:  # the run that is going on there removes it just now
        return False
    return all(found.get(name) == size for name, size in noted.items())


def _sizes(folder: Path) -> dict[str, int]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != COMPLETE)
    return {str(file.relative_to(folder)): file.stat().st_size for file in files}


def rewind(run: RunDir, step: int) -> None:
    """Drops what lies after a step: metrics, rollouts and checkpoints, whole or not."""
    kept = [row for row in read_metrics(run) if row["step"] <= step]
    with whole_file(run.metrics) as unfinished:
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    for recorded in rollout_steps(run):
        if recorded > step:
            (run.rollouts / STEP_FILE.format(recorded)).unlink()
    for folder in run.checkpoints.glob("checkpoint-*"):
        if checkpoint_step(folder) > step or not _is_whole(folder):
            shutil.rmtree(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
