"""Reads the recorded rows of a run, or a Parquet file of rows, to score them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grpo.core.record.agent_calls import without_ids
from grpo.core.record.browse import Rollout, from_table, read_step, to_completion
from grpo.core.record.rollout_columns import COLUMNS
from grpo.core.record.run_dir import is_run, open_run_dir, read_json, rollout_steps
from grpo.core.record.versions import plugin_locks
from grpo.core.scoring import rows as recorded_rows
from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.rows import RecordedRow
from grpo.plugins.errors import DatasetError, UsageError


def is_recorded(source: Path) -> bool:
    """Returns whether a path is a folder, which should be a run, or a Parquet file."""
    return source.is_dir() or source.suffix == ".parquet"


def read_recorded(source: Path) -> Iterator[RecordedRow]:
    """Yields the rows of a run, or of a Parquet file, numbered from 1. Raises UsageError, DatasetError."""
    if source.is_dir():
        for number, (step, rollout) in enumerate(rollouts_of(source), start=1):
            yield _row(number, step, rollout)
        return
    for number, values in enumerate(_table(source), start=1):
        if values.keys() >= {*COLUMNS}:
            yield _row(number, values["step"], from_table(number - 1, values))
            continue
        try:
            yield RecordedRow(number, values, recorded_rows.to_completion(values))
        except ValueError as error:
            raise DatasetError(f"{source}, row {number}: {error}. A row has a 'completion' and columns.") from error


def rollouts_of(path: Path) -> Iterator[tuple[int, Rollout]]:
    """Yields the completions of a run with their steps. Raises UsageError if it is no run, or has no rollouts yet."""
    run = open_run_dir(path.parent if path.name == "rollouts" and is_run(path.parent) else path)
    steps = rollout_steps(run)
    if not steps:
        raise UsageError(f"{path} has no rollouts yet. They appear with the first step.")
    for step in steps:
        yield from ((step, rollout) for rollout in read_step(run, step)[1])


def own_outcomes(path: Path, rollouts: Sequence[Rollout]) -> tuple[dict[str, list[Outcome]], dict[str, float]]:
    """Returns the outcomes of the run's own rewards, by name, and their weights. UsageError: it has no record."""
    plugins = plugin_locks(read_json(open_run_dir(path).versions)).values()
    locks = {lock["name"]: lock for lock in plugins if lock.get("kind") == "reward"}
    if not locks:
        raise UsageError(f"{path} does not say which rewards it had. Name them with --old.")
    outcomes = {
        name: [
            Outcome(outcome.outcome, outcome.score, outcome.reason)  # type: ignore[arg-type]  # as the run wrote it
            if (outcome := rollout.outcomes.get(name)) is not None
            else Outcome("abstain")  # a reward of another environment
            for rollout in rollouts
        ]
        for name in locks
    }
    return outcomes, {name: float(lock.get("weight") or 0.0) for name, lock in locks.items()}


def _row(number: int, step: int, rollout: Rollout) -> RecordedRow:
    values: dict[str, Any] = {
        **rollout.columns,
        "completion": list(rollout.messages) or rollout.completion,
        "prompt": list(rollout.prompt),
        "step": step,
        "group": rollout.group,
        **({"info": without_ids(rollout.info)} if rollout.info else {}),
        **({"env": rollout.env} if rollout.env else {}),
    }
    return RecordedRow(number, values, to_completion(rollout))


def _table(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=1024):
                yield from batch.to_pylist()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}. Name a run, a Parquet or a JSONL file.") from error
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{file} cannot be read as Parquet: {first} Name a run, a Parquet or a JSONL file.") from error
