"""Writes the run directory, so that kill -9 at any moment loses nothing.

    config.json         the resolved configuration; `grpo run --config` reads it too
    versions.json       when and in which folder it started, versions of python and of the libraries, and the lock of
                        every plugin
    state.json          status, process id, last step
    metrics.jsonl       one object per step
    rollouts/           step-000001.parquet: one row per completion; wasted-000001.parquet: what was sampled in vain;
                        trained-000001.parquet: what tokens were trained with
    base/               the weights that it began with, where another run had trained them
    warmup/             the policy after the supervised steps, if there were any
    checkpoints/        checkpoint-20/, whole once it holds complete.json; see core/record/checkpoint.py
    model/              the final model or adapter, with its tokenizer
    reward.png          the curves
    canaries.json       what the canaries scored at the start, if there are any
    labels.json         tags and a note that a person gave it, if any did
    tensorboard/        the metrics as TensorBoard's events, where asked for

Files appear whole: written under another name, synced, renamed. A link at that name, in a run that a stranger made, is
not written through. metrics.jsonl is appended and synced line by line; a half line at its end is dropped when the run
resumes, as is everything after the checkpoint it resumes from.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from grpo.core.record.rollout_columns import (
    COLUMNS,
    PARTS,
    TOKENS,
    refuse_other_columns,
    refuse_other_values,
    type_of,
)
from grpo.core.record.table import LARGEST, parsed, read_table
from grpo.core.text.printable import encodable
from grpo.plugins.errors import UsageError

ORIGIN = "origin.json"  # beside weights that a run begins with: which run they are from
STEP_FILE = "step-{:06d}.parquet"
STEP = re.compile(r"step-([0-9]{6,10})\.parquet")
WASTED_FILE = "wasted-{:06d}.parquet"
LONGEST_LINE = 16 * 2**20  # bytes of the metrics of a step
LONGEST_SETTINGS = 64 * 2**20  # bytes of what says what a run is and how far
LONGEST_RECORD = 4 * 2**30  # and of rollouts under way, in a checkpoint


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One recorded completion."""

    step: int  # the optimizer step that it was sampled for, from 1
    group: int  # number of its group within the step
    prompt: str  # chat messages, as JSON
    completion: str  # the text
    tokens: int  # how many were sampled
    finish_reason: str  # "stop" or "length"
    columns: str  # the row that the rewards read, as JSON
    reward: float | None  # the weighted total, or None
    advantage: float  # what it was trained with; 0.0 for failed completions
    # name to (outcome, score, reason) of each reward that is for its environment
    outcomes: Mapping[str, tuple[str, float | None, str | None]]
    # the turns of a rollout whose environment was stepped, as JSON; None: `completion` is all
    messages: str | None = None
    info: str | None = None  # what the environment reported in such a rollout, as JSON
    env: str = ""  # the environment, as the run names it
    right: bool | None = None  # what the verifier says of it, None where nobody knows
    why: str | None = None  # the verifier's reason, or why it failed; None where it gave none
    # what was sampled, without what an environment said in between; None where it was not kept
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None  # of each of them as it was sampled, in nats
    # what each turn earned of the total, where turns have advantages of their own; else None
    turn_rewards: Sequence[float] | None = None
    turn_advantages: Sequence[float] | None = None  # what each turn was trained with; `advantage` is their mean
    # (step, tokens): how many of the tokens the policy of which optimizer step sampled, in order, where rollouts are
    # continued from step to step; else None
    sampled_by: Sequence[tuple[int, int]] | None = None


class _Inside:
    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, kind: type[RunDir]) -> Path:
        return run.path / self._name


@dataclass(frozen=True, slots=True)
class RunDir:
    """The files of one run, by name."""

    path: Path

    config = _Inside("config.json")
    versions = _Inside("versions.json")
    state = _Inside("state.json")
    lock = _Inside(".lock")
    labels = _Inside("labels.json")
    metrics = _Inside("metrics.jsonl")
    rollouts = _Inside("rollouts")
    events = _Inside("tensorboard")
    mlflow = _Inside("mlflow.json")
    otel = _Inside("otel.json")
    trackio = _Inside("trackio.json")
    wandb = _Inside("wandb.json")
    base = _Inside("base")
    warmup = _Inside("warmup")
    checkpoints = _Inside("checkpoints")
    model = _Inside("model")
    canaries = _Inside("canaries.json")
    plot = _Inside("reward.png")


def create_run_dir(path: Path, config: Mapping[str, Any], versions: Mapping[str, Any]) -> RunDir:
    """Makes a new run directory, with time and folder of its start beside the versions. Raises UsageError."""
    run = RunDir(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with exclusive(run):  # another process may begin here at the same moment
            for folder in (run.rollouts, run.checkpoints):
                folder.mkdir(exist_ok=hardly_begun(path))
            began = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "folder": str(Path.cwd())}
            write_json(run.versions, {**began, **versions})
            write_json(run.config, config)
    except OSError as error:
        raise UsageError(
            f"cannot write the run directory {path}: {error.strerror}. Choose another with --out."
        ) from None
    return run


def read_state(run: RunDir) -> dict[str, Any]:
    """Returns what state.json says; nothing where it is missing or damaged, as the other files tell it, too."""
    with suppress(UsageError):
        state = read_json(run.state, longest=LONGEST_SETTINGS)
        if isinstance(state, dict):
            return state
    return {}


def started_in(run: RunDir) -> Path | None:
    """Returns the folder for the relative paths of a run's settings; None: this one, or it is gone."""
    recorded = read_json(run.versions)
    folder = recorded.get("folder") if isinstance(recorded, dict) else None
    there = isinstance(folder, str) and Path(folder).is_dir() and Path(folder) != Path.cwd()
    return Path(folder) if there else None  # type: ignore[arg-type]


def is_run(folder: Path) -> bool:
    """Returns whether a folder is a run directory; a model's folder has a config.json too, but no versions.json."""
    try:
        return (folder / "config.json").is_file() and (folder / "versions.json").is_file()
    except OSError:  # a name that is too long for one, or a folder that is not ours to look into
        return False


def hardly_begun(folder: Path) -> bool:
    """Returns whether a folder holds no more than a run that was killed before its configuration was written."""
    left = {".lock", "rollouts", "checkpoints", "versions.json"}
    left |= {".versions.json.unfinished", ".config.json.unfinished"}
    files = (str(file.relative_to(folder)) for file in folder.rglob("*"))
    return (folder / "rollouts").is_dir() and all(file in left for file in files)


def lost_files(folder: Path) -> str | None:
    """Says what a folder with a run's record has lost, without which it is no run directory; None: nothing."""
    try:
        if is_run(folder) or not (folder / "metrics.jsonl").is_file() or not (folder / "rollouts").is_dir():
            return None
    except OSError:
        return None
    missing = " and ".join(name for name in ("config.json", "versions.json") if not (folder / name).is_file())
    return f"{folder} is a run that lost its {missing}. Put back a copy, or start a new run."


def open_run_dir(path: Path) -> RunDir:
    """Opens an existing run directory. Raises UsageError if it does not hold a run."""
    if not is_run(path):
        if lost := lost_files(path):
            raise UsageError(lost)
        what = "is not a run directory: it has no config.json and versions.json" if path.exists() else "does not exist"
        raise UsageError(f"{path} {what}. List the runs with: grpo runs")
    return RunDir(path)


class Hold:
    """Holds a run directory for this process; the system releases it however the process ends. Raises UsageError."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._file = self._locked()

    def renew(self) -> None:
        """Holds a directory that has taken the place of the one before. Raises UsageError."""
        self._file.close()
        self._file = self._locked()

    def close(self) -> None:
        self._file.close()

    def _locked(self) -> IO[str]:
        try:
            file = _opened_lock(self._run, "a")
        except OSError as error:
            raise UsageError(
                f"cannot write in {self._run.path}: {error.strerror}. Copy the run to where you may write."
            ) from None
        if file is None:
            raise UsageError(f"{self._run.lock} is not a file that a run makes. Remove it.")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UsageError(f"{self._run.path} is in use by a run that is still going. Stop that one first.") from None
        return file


def exclusive(run: RunDir) -> closing[Hold]:
    """Holds the run directory for this process while the block runs. Raises UsageError if another process holds it."""
    return closing(Hold(run))


def in_use(run: RunDir) -> bool:
    """Returns whether a process runs in the directory, which need not be writable."""
    try:
        file = _opened_lock(run, "r")
    except FileNotFoundError:
        return False
    if file is None:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _opened_lock(run: RunDir, mode: str) -> IO[str] | None:
    """Opens the lock; None where a link, a pipe or the like is in its place, which no run puts there."""

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)

    try:
        file = open(run.lock, mode, opener=opener)  # noqa: SIM115 (Path.open takes no opener)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            return None
        raise
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file that is either whole or not there."""
    with whole_file(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def read_json(path: Path, *, longest: int = LONGEST_RECORD) -> Any:
    """Reads a JSON file of at most `longest` bytes; None when it does not exist."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > longest:
                raise UsageError(f"{path} has {size:,} bytes, and no run writes more than {longest:,}. Remove the run.")
            return parsed(file.read().decode())
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}. Fix it, or start a new run.") from None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a name to write to; renames it to `path` once it is synced, removes it when the writer fails."""
    unfinished = _unfinished(path)
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields a folder to fill; puts it in the place of `path` once its files are synced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    unfinished.mkdir()
    try:
        yield unfinished
        ordinary_modes(unfinished)
        for file in unfinished.rglob("*"):
            sync(file)
        shutil.rmtree(path, ignore_errors=True)
        unfinished.replace(path)
        sync(path.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Removes a folder, if there is one, under another name, so that a killed remover leaves no half of it."""
    if path.is_dir():
        shutil.rmtree(path.replace(_unfinished(path)), ignore_errors=True)


def _unfinished(path: Path) -> Path:
    """Returns the name to write under, always the same, removing what a killed writer or a stranger left there."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    if unfinished.is_dir() and not unfinished.is_symlink():
        shutil.rmtree(unfinished, ignore_errors=True)
    else:
        unfinished.unlink(missing_ok=True)
    return unfinished


def append_metrics(run: RunDir, row: Mapping[str, Any]) -> None:
    """Appends one step to metrics.jsonl and syncs it."""
    with run.metrics.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_metrics(run: RunDir) -> list[dict[str, Any]]:
    """Reads metrics.jsonl without a half line at its end. Raises UsageError if another line of it was damaged."""
    if not run.metrics.is_file():
        return []
    rows: list[dict[str, Any]] = []
    with run.metrics.open("rb") as file:
        lines = iter(partial(file.readline, LONGEST_LINE + 1), b"")
        for number, line in enumerate(lines, start=1):
            try:
                rows += [_measured(line)] if line.endswith(b"\n") or len(line) > LONGEST_LINE else []
            except ValueError as error:
                raise UsageError(f"{run.metrics}, line {number}, was damaged: {error}. Remove that line.") from None
    return rows


def _measured(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
    row = parsed(line.decode())
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("not an object with a step")
    if not 0 <= row["step"] <= LARGEST:
        raise ValueError(f"no run has a step {row['step']}")
    for name, value in row.items():
        if not isinstance(value, int | float | None):
            raise ValueError(f"{name!r} is not a number")
    return row


def write_rollouts(run: RunDir, step: int, rows: Sequence[RolloutRow], *, wasted: bool = False) -> None:
    """Writes the completions of one step as one Parquet file; those sampled in vain have a file of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    for name in dict.fromkeys(name for row in rows for name in row.outcomes):
        for position, part in enumerate(PARTS):
            columns[f"{part}.{name}"] = [row.outcomes.get(name, (None, None, None))[position] for row in rows]
    written = {
        key: [encodable(rollout) if isinstance(rollout, str) else rollout for rollout in own]
        for key, own in columns.items()
    }
    table = pa.table({key: pa.array(values, type=type_of(key)) for key, values in written.items()})
    with whole_file(run.rollouts / (WASTED_FILE if wasted else STEP_FILE).format(step)) as unfinished:
        pq.write_table(table, unfinished, write_page_checksum=True)


def rollout_steps(run: RunDir) -> list[int]:
    """Returns the steps that have recorded rollouts, ascending; what else lies there is no step."""
    matches = ((file.name, STEP.fullmatch(file.name)) for file in run.rollouts.glob("step-*.parquet"))
    steps = ((name, int(match[1])) for name, match in matches if match)
    return sorted(step for name, step in steps if step <= LARGEST and name == STEP_FILE.format(step))


def read_rollouts(
    run: RunDir, step: int, *, wasted: bool = False, tokens: bool = True, numbers: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Reads the completions of one step: those that trained, or those that were sampled in vain, which may be none.

    Without `tokens`, the large `token_ids` and `logprobs` are left out. `numbers`: which completions, None for all.
    Raises UsageError if the step has none, or its file was damaged.
    """
    import pyarrow as pa

    def wanted(schema: Any) -> list[str]:
        refuse_other_columns(schema)
        return [name for name in schema.names if tokens or name not in TOKENS]

    file = run.rollouts / STEP_FILE.format(step)
    if not file.is_file():
        steps = rollout_steps(run)
        have = f"it has steps {steps[0]} to {steps[-1]}" if steps else "it has none yet"
        raise UsageError(f"{run.path} has no rollouts of step {step}; {have}.")
    if wasted:
        file = run.rollouts / WASTED_FILE.format(step)
        if not file.is_file():
            return []
    try:
        table = read_table(file, wanted)
        refuse_other_values(table)
        if numbers is not None:
            buffer = pa.py_buffer(array("q", numbers))  # as a list it would have pyarrow load pandas
            table = table.take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, buffer]))
        rows: list[dict[str, Any]] = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{file} was damaged: {str(error).splitlines()[0]} Remove it: its step is left out.") from None
    return rows


def ordinary_modes(folder: Path) -> None:
    """Gives the files of a new folder the umask's modes; safetensors writes for the owner alone."""
    mode = folder.stat().st_mode & 0o666
    for file in folder.rglob("*"):
        if file.is_file() and file.stat().st_mode & 0o777 != mode:
            file.chmod(mode)


def sync(path: Path) -> None:
    """Has the system write a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
