"""Rollouts that anybody may have made: what no run writes is refused by its column, and what one may write is not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_run import made_run

from grpo.core.record.browse import read_step
from grpo.core.record.run_dir import RunDir, read_rollouts
from grpo.core.record.trained import read_trained
from grpo.plugins.errors import UsageError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return made_run(tmp_path_factory.mktemp("runs") / "run", steps=1)


def altered(run: RunDir, column: str, value: Any) -> RunDir:
    """Puts a value into a row of the first step."""
    file = run.rollouts / "step-000001.parquet"
    table = pq.read_table(file)
    values = table[column].to_pylist()
    changed = pa.array([value, *values[1:]], type=table.schema.field(column).type)
    pq.write_table(table.set_column(table.column_names.index(column), column, changed), file, write_page_checksum=True)
    return run


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("step", value) for value in (-1, 2**31, None)),
        *(("group", value) for value in (-1, 2**40, None)),
        *(("tokens", value) for value in (-1, None)),
        *((name, None) for name in ("prompt", "completion", "finish_reason", "columns", "advantage")),
        *(("prompt", text) for text in ("", "5", "{}", "[1]", "[{}]", '[{"role": 1}]', DEEP)),
        *(("messages", text) for text in ("", "5", '[{"a": 1}]', DEEP)),
        *(("columns", text) for text in ("", "[1]", "null", f'{{"a": {"[" * 500}{"]" * 500}}}', DEEP)),
        *(("info", text) for text in ("", "[1]", "null", DEEP)),
        *(("outcome.proximity", text) for text in ("weird", "", "score\x1b[31m")),
        *(("score.proximity", number) for number in (math.nan, math.inf, -math.inf)),
        ("finish_reason", "fin\x1b]52;c;x\x07ished"),
        *(("token_ids", ids) for ids in ([-1, 5], [None])),
        ("turn_rewards", [None]),
        ("turn_advantages", [1.0, None]),
        *(("sampled_by", pairs) for pairs in ([[1]], [[1, 2, 3]], [None], [[1, None]], [[-1, 2]])),
    ],
)
def test_what_no_run_writes_is_refused_by_file_and_column(tmp_path: Path, column: str, value: Any) -> None:
    run = altered(made_run(tmp_path / "run", steps=1, groups=1), column, value)
    with pytest.raises(UsageError, match=rf"step-000001\.parquet was damaged: .*'{column}' (is|has)") as error:
        read_rollouts(run, 1)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("reward", number) for number in (None, math.nan, math.inf, 1e300)),  # of a run that overflows
        *(("advantage", number) for number in (math.nan, -math.inf)),
        ("score.proximity", None),
        *(("outcome.proximity", text) for text in (None, "abstain", "failure")),
        ("prompt", "[]"),
        ("columns", json.dumps({"answer": 10**400})),
        *(("messages", text) for text in (None, "[]", '[{"role": "tool", "content": null}, {"role": "x"}]')),
        *(("info", text) for text in (None, "{}")),
        *(("token_ids", ids) for ids in (None, [], [70_000])),
        *(("logprobs", values) for values in ([math.nan, -math.inf], [None])),
        *(("sampled_by", pairs) for pairs in ([], [[1, 2], [3, 4]])),
        ("env", None),
        ("right", None),
    ],
)
def test_what_a_run_may_write_is_read(tmp_path: Path, column: str, value: Any) -> None:
    run = altered(made_run(tmp_path / "run", steps=1, groups=1), column, value)
    assert repr(read_rollouts(run, 1)[0][column]) == repr(value)
    _, rollouts = read_step(run, 1)
    assert all(isinstance(message["content"], str) for message in (*rollouts[0].prompt, *rollouts[0].messages))


@pytest.mark.parametrize(("row", "values"), [(-1, [1.0]), (None, [1.0]), (0, None), (0, [None]), (0, ["x"])])
def test_what_tokens_were_trained_with_is_refused_where_no_run_writes_it(run: RunDir, row: Any, values: Any) -> None:
    own = pa.array([values], type=None if values == ["x"] else pa.list_(pa.float32()))
    table = pa.table({"row": pa.array([row], pa.int32()), "log_ratios": own, "advantages": own})
    pq.write_table(table, run.rollouts / "trained-000001.parquet")
    with pytest.raises(UsageError, match=r"trained-000001\.parquet was damaged: .* Remove it\."):
        read_trained(run, 1)
    pq.write_table(table.select(["row"]), run.rollouts / "trained-000001.parquet")
    with pytest.raises(UsageError, match="its columns are others"):
        read_trained(run, 1)
