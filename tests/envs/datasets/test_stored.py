"""Rows on disk: lines by where they begin, tables mapped from files, one sequence over several of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from grpo.envs.datasets import json_lines
from grpo.envs.datasets.files import open_file, read_files
from grpo.envs.datasets.stored import ReadRows, StoredRows
from grpo.plugins.errors import DatasetError


def lines(folder: Path, *values: Any, name: str = "rows.jsonl", end: str = "\n") -> Path:
    path = folder / name
    path.write_text(end.join(json.dumps(value) for value in values), encoding="utf-8")
    return path


@pytest.mark.parametrize("block", [1, 7, 16, 1 << 22])
@pytest.mark.parametrize(
    "text",
    [
        '{"n": 0}\n{"n": 1}\n{"n": 2}\n',
        '\n{"n": 0}\n \t\n{"n": 1}\r\n\r\n  {"n": 2}  ',
        '\ufeff{"n": 0}\n\n\n{"n": 1}\n{"n": 2}\n\n  \n',
    ],
)
def test_lines_are_found_wherever_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, block: int
) -> None:
    monkeypatch.setattr(json_lines, "_BLOCK", block)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text.encode())
    rows = read_files([path])
    numbers = [number for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    assert list(rows) == [(f"{path}, line {number}", {"n": n}) for n, number in enumerate(numbers)]
    assert [rows[n] for n in (2, 0, -2)] == [list(rows)[n] for n in (2, 0, -2)]
    assert list(rows[1:][:1]) == [list(rows)[1]]


@pytest.mark.parametrize("text", ["", "\ufeff", "\n \n", "\ufeff\n"])
def test_a_file_of_blank_lines_has_no_rows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text.encode())
    assert len(read_files([path])) == 0


def test_a_file_that_changes_while_its_rows_are_used_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path, {"n": 0}, {"n": 1})
    rows = read_files([path])
    with path.open("a") as file:
        file.write('\n{"n": 2}')
    with pytest.raises(DatasetError, match="was changed while its rows are in use"):
        rows[0]


def test_a_file_that_is_replaced_stays_what_it_was(tmp_path: Path) -> None:
    path = lines(tmp_path, {"n": 0}, {"n": 1})
    rows = read_files([path])
    lines(tmp_path, {"n": 5}, name="new.jsonl").replace(path)
    assert [row for _, row in rows] == [{"n": 0}, {"n": 1}]


def test_types_that_no_table_could_hold_come_back_as_they_were_written(tmp_path: Path) -> None:
    values = [{"n": "one", "d": "2024-05-01"}, {"n": 1, "d": None}, {"n": {"a": [1, "b"]}}, {"n": 2**70}, {"n": 1.0}]
    assert [row for _, row in read_files([lines(tmp_path, *values)])] == values


def test_rows_of_several_files_are_one_sequence(tmp_path: Path) -> None:
    files = [lines(tmp_path, *({"n": n} for n in part), name=f"{part.start}.jsonl") for part in (range(3), range(3, 5))]
    rows = StoredRows([open_file(file) for file in files])
    assert [row for _, row in rows] == [{"n": n} for n in range(5)]
    assert [row for _, row in rows[2:4]] == [{"n": 2}, {"n": 3}]
    assert rows[3:][0] == (f"{files[1]}, line 1", {"n": 3})
    assert len({rows.digest(), rows[1:].digest(), rows[:4].digest()}) == 3
    assert rows[1:4].digest() == StoredRows([open_file(file) for file in files])[1:4].digest()
    with pytest.raises(IndexError):
        rows[5]


def test_read_rows_know_their_places_and_sizes_in_every_part(tmp_path: Path) -> None:
    path = lines(tmp_path, *({"n": n} for n in range(6)))
    rows = ReadRows(read_files([path]), lambda row, where: {**row, "where": where}, range(10, 16), range(6), (0, 3))
    part = rows[2:5]
    assert list(part) == [{"n": n, "where": f"{path}, line {n + 1}"} for n in (2, 3, 4)]
    assert (part[1], part.places[1]) == (list(part)[1], f"{path}, line 4")
    assert (list(part.sizes), list(part.kinds)) == ([12, 13, 14], [1])


@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_objects_of_a_list_are_rows(tmp_path: Path, name: str, indent: int | None) -> None:
    values = [{"n": 'a]b,\\"', "m": [1, {"x": None}]}, {"n": 12345}, 678, {"n": "é\u2028"}]
    path = tmp_path / name
    packed = json.dumps(values, indent=indent).encode()
    path.write_bytes(gzip.compress(packed) if name.endswith(".gz") else packed)
    assert list(read_files([path])) == [(f"{path}, row {n}", value) for n, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": [1]}', "holds a dict. Write one list of objects"),
        ('[{"a": 1}', "not JSON: Expecting ',' delimiter"),
        ('[{"a": 1} {"a": 2}]', "not JSON: Expecting ',' delimiter"),
        ('[{"a": 1}] 7', "not JSON: Extra data"),
        ('[{"a": 1},]', "not JSON"),
        ("", "not JSON"),
    ],
)
def test_a_json_file_that_is_no_list_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=fault):
        read_files([path])


@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz"])
def test_json_lines_are_read_from_a_json_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    packed = b'\n{"n": 0}\n{"n": 1}\n'
    path.write_bytes(gzip.compress(packed) if name.endswith(".gz") else packed)
    assert [row for _, row in read_files([path])] == [{"n": 0}, {"n": 1}]
    path = lines(tmp_path, [{"n": 0}], name="one.json")
    assert [row for _, row in read_files([path])] == [{"n": 0}]


@pytest.mark.parametrize(
    ("name", "text", "row"),
    [
        ("a.csv", "prompt;answer\na, b;1\n", {"prompt": "a, b", "answer": "1"}),
        ("a.csv", 'prompt;answer\n"a; ""b""";1,5\n', {"prompt": 'a; "b"', "answer": "1,5"}),
        ("a.csv", "prompt\tanswer\na, b\t1\n", {"prompt": "a, b", "answer": "1"}),
        ("a.csv", "prompt|answer\na|1\n", {"prompt": "a", "answer": "1"}),
        ("a.csv", "prompt,why;so;now\na,b\n", {"prompt": "a", "why;so;now": "b"}),
        ("a.csv", "prompt\na;b\n", {"prompt": "a;b"}),
        ("a.tsv", "a, or b, or c\tanswer\nx\t1\n", {"a, or b, or c": "x", "answer": "1"}),
    ],
)
def test_a_table_is_divided_by_what_divides_its_first_lines(
    tmp_path: Path, name: str, text: str, row: dict[str, str]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert [row for _, row in read_files([path])] == [row]
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert [row for _, row in read_files([packed])] == [row]


def test_a_long_field_of_a_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"prompt,answer\n{'lorem ' * 50_000},1\n", encoding="utf-8")
    [(_, row)] = read_files([path])
    assert row == {"prompt": "lorem " * 50_000, "answer": "1"}


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_nulls_that_a_table_adds_to_messages_are_taken_out_again(tmp_path: Path, name: str) -> None:
    def row(arguments: dict[str, Any]) -> dict[str, Any]:
        call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
        return {"prompt": messages, "answer": None, "info": {"a": None, "b": 1}}

    rows = [row({"zone": "CET"}), row({"city": "Oslo", "days": [1, None]})]
    table = pyarrow.Table.from_pylist(rows)
    if name.endswith(".parquet"):
        pyarrow.parquet.write_table(table, tmp_path / name)
    else:
        with pyarrow.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    stored = read_files([tmp_path / name])
    assert [row for _, row in stored] == rows
    assert stored[1][1] == rows[1]


def test_a_parquet_file_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    pyarrow.parquet.write_table(pyarrow.table({"n": [str(n) for n in range(40_000)]}), tmp_path / "a.parquet")
    rows = read_files([tmp_path / "a.parquet"])
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"n": "0"}\n'))
    other = read_files([packed])
    assert not list(spool.iterdir())
    assert (rows[39_999][1], rows[0][1], other[0][1]) == ({"n": "39999"}, {"n": "0"}, {"n": "0"})
