"""The record of what tokens were trained with: rows of a step in, a Parquet file beside its rollouts out, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo.core.record.run_dir import RunDir, whole_file
from grpo.plugins.errors import UsageError

TRAINED_FILE = "trained-{:06d}.parquet"


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """What the tokens of one rollout were trained with, in the order of its `token_ids`.

    Attributes:
        row: the number of the rollout within its step.
        log_ratios: by how much more probable the policy that trains finds each token than whoever sampled it, in nats,
            to four digits; before the step, and before any correction.
        advantages: of each token.
    """

    row: int
    log_ratios: Sequence[float]
    advantages: Sequence[float]


def write_trained(run: RunDir, step: int, rows: Sequence[TrainedRow]) -> None:
    """Writes what the tokens of a step were trained with."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "row": pa.array([one.row for one in rows], type=pa.int32()),
            "log_ratios": pa.array([one.log_ratios for one in rows], type=pa.list_(pa.float32())),
            "advantages": pa.array([one.advantages for one in rows], type=pa.list_(pa.float32())),
        }
    )
    with whole_file(run.rollouts / TRAINED_FILE.format(step)) as unfinished:
        pq.write_table(table, unfinished, write_page_checksum=True)


def read_trained(run: RunDir, step: int) -> dict[int, TrainedRow]:
    """Reads what the tokens of a step were trained with, by the number of the rollout.

    Rollouts without a gradient are not in it; nor is anything where a step was not trained on to its end.

    Raises:
        UsageError: the file was damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = run.rollouts / TRAINED_FILE.format(step)
    if not file.is_file():
        return {}
    try:
        table = pq.read_table(file, page_checksum_verification=True)
        found = [TrainedRow(one["row"], one["log_ratios"], one["advantages"]) for one in table.to_pylist()]
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise UsageError(f"{file} was damaged: {str(error).splitlines()[0]} Remove it.") from None
    return {one.row: one for one in found}
