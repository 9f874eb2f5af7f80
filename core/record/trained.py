"""Records what the tokens of a step were trained with, in a Parquet file beside its rollouts, and reads it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo.core.record.run_dir import RunDir, whole_file
from grpo.core.record.table import read_table
from grpo.plugins.errors import UsageError

TRAINED_FILE = "trained-{:06d}.parquet"


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """What the tokens of one rollout were trained with, in the order of its `token_ids`."""

    row: int  # the number of the rollout within its step
    # by how much more probable the policy that trains finds each token than whoever sampled it, in nats, to four
    # digits; before the step, and before any correction
    log_ratios: Sequence[float]
    advantages: Sequence[float]  # of each token


def write_trained(run: RunDir, step: int, rows: Sequence[TrainedRow]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        [[row.row for row in rows], [row.log_ratios for row in rows], [row.advantages for row in rows]],
        schema=_schema(),
    )
    with whole_file(run.rollouts / TRAINED_FILE.format(step)) as unfinished:
        pq.write_table(table, unfinished, write_page_checksum=True)


def read_trained(run: RunDir, step: int) -> dict[int, TrainedRow]:
    """Reads what a step's tokens were trained with, by rollout with a gradient. UsageError: a damaged file."""
    import pyarrow as pa

    file = run.rollouts / TRAINED_FILE.format(step)
    if not file.is_file():
        return {}
    try:
        table = read_table(file, _columns)
        _refuse_other_values(table)
        trained = [
            TrainedRow(record["row"], record["log_ratios"], record["advantages"]) for record in table.to_pylist()
        ]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{file} was damaged: {str(error).splitlines()[0]} Remove it.") from None
    return {row.row: row for row in trained}


def _schema() -> Any:
    import pyarrow as pa

    lists = pa.list_(pa.float32())
    return pa.schema([("row", pa.int32()), ("log_ratios", lists), ("advantages", lists)])


def _columns(schema: Any) -> list[str]:
    own = _schema()
    if not schema.equals(own):
        raise ValueError("its columns are others.")
    return list(own.names)


def _refuse_other_values(table: Any) -> None:
    import pyarrow.compute as pc

    gaps = sum(table[name].null_count for name in table.column_names)
    gaps += sum(pc.list_flatten(table[name]).null_count for name in ("log_ratios", "advantages"))
    if gaps or (pc.min(table["row"]).as_py() or 0) < 0:
        raise ValueError("a value is missing, or the number of a rollout is below 0.")
