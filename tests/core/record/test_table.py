"""Parquet files that anybody may have made: small ones that unfold to more than memory has room for are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo.core.record import table as tables
from grpo.core.record.table import MOST_ROWS, read_table


def every(schema: Any) -> Sequence[str]:
    return list(schema.names)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    written = pa.table(
        {
            "a.text": ["one", None, "one", "two"],
            "list": pa.array([[1], [], None, [2, 3]], pa.list_(pa.int32())),
            "pairs": pa.array([[[1, 2]], None, [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int64()))),
            "number": [1.5, None, 2.5, float("inf")],
        }
    )
    pq.write_table(written, file, row_group_size=3, write_page_checksum=True)
    assert read_table(file, every).equals(written)
    assert read_table(file, lambda _: ["number", "a.text"]).equals(written.select(["number", "a.text"]))


def test_one_long_text_again_and_again_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), ["x" * 10_000_000])
    pq.write_table(pa.table({"text": long}), file, store_schema=False)
    assert file.stat().st_size < 1_000_000
    with pytest.raises(ValueError, match=r"its texts have more than 2,147,483,648 bytes"):
        read_table(file, every)


@pytest.mark.parametrize(
    "column",
    [pa.array(["x" * 200_000]), pa.array([[7] * 20_000], pa.list_(pa.int32())), pa.array([["x" * 200_000]])],
)
def test_what_unfolds_to_too_much_is_refused_before_it_is_read(
    tmp_path: Path, column: pa.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"column": column}), file)
    assert file.stat().st_size < 20_000
    assert read_table(file, every).num_rows == 1
    monkeypatch.setattr(tables, "MOST_BYTES", 100_000)
    with pytest.raises(ValueError, match=r"it unfolds to [0-9,]+ bytes, and no run writes more than 100,000"):
        read_table(file, every)


def test_more_rows_than_a_step_has_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"right": pa.nulls(MOST_ROWS + 1, pa.bool_())}), file)
    with pytest.raises(ValueError, match=r"it has 1,048,577 rows"):
        read_table(file, every)


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), file)
    with pytest.raises(ValueError, match="a column twice"):
        read_table(file, every)
