"""Local files: JSONL and Parquet, folders, the rule for files without splits, and errors that name file and line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from grpo.envs.datasets.files import held_out, read_files
from grpo.envs.datasets.folders import read_split
from grpo.plugins.errors import DatasetError


def _jsonl(path: Path, count: int, mark: str = "") -> Path:
    path.write_text("".join(f'{{"n": "{mark}{i}"}}\n' for i in range(count)), encoding="utf-8")
    return path


def _values(placed: Iterable[tuple[str, Any]]) -> list[str]:
    return [row["n"] for _, row in placed]


def test_jsonl_lines_keep_their_numbers_over_blank_lines_and_line_separators(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": "a\xe2\x80\xa8b"}\r\n\r\n  \n{"n": "c"}')
    assert list(read_files([path])) == [(f"{path}, line 1", {"n": "a\u2028b"}), (f"{path}, line 4", {"n": "c"})]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{'n': 1}", "not JSON: Expecting property name enclosed in double quotes at column 2"),
        (b'{"n": 1\n', "not JSON: Expecting ',' delimiter at column 8"),
        (b'{"n": "ab\n', "not JSON: Unterminated string starting at column 7"),
        (b'{"n": "a\tb"}\n', "not JSON: Invalid control character at column 9"),
        (b"{} {}", "not JSON: Extra data"),
        (b'{"n": "\xff"}', "not UTF-8 at byte 8"),
        (b"[" * 100_000, "JSON that cannot be read"),
        (b"9" * 5_000, "JSON that cannot be read"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, fault: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": "0"}\n\n' + line + b'\n{"n": "1"}\n')
    with pytest.raises(DatasetError) as caught:
        list(read_split(path, "train"))
    assert str(caught.value).startswith(f"{path}, line 3: {fault}")


def test_a_list_in_a_file_of_lines_is_told_before_its_number_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('[{"n": "1"}, {"n": "2"}]\n')
    with pytest.raises(DatasetError, match=r"rows\.jsonl: its only line is a list\. .* name the file \*\.json"):
        read_files([path])
    assert len(read_files([path.rename(tmp_path / "rows.json")])) == 2


def test_reading_a_file_is_lazy(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": "0"}\nbroken\n', encoding="utf-8")
    rows = read_files([path])
    assert rows[0] == (f"{path}, line 1", {"n": "0"})
    assert len(rows) == 2
    with pytest.raises(DatasetError, match="line 2"):
        rows[1]


def test_parquet_rows_are_numbered_over_batches(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": [str(i) for i in range(2500)]}), path, row_group_size=700)
    rows = list(read_files([path]))
    assert rows[2499] == (f"{path}, row 2500", {"n": "2499"})
    assert [where for where, _ in rows] == [f"{path}, row {i}" for i in range(1, 2501)]


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": [str(i) for i in range(5000)]}), path, compression="none")
    whole = path.read_bytes()
    for damaged in (b"", b"{}", whole[:-20], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match="not readable as Parquet") as caught:
            read_split(path, "train")
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(("count", "tested"), [(2, 1), (9, 1), (10, 1), (20, 2), (99, 9), (5000, 500), (9000, 500)])
def test_a_file_without_splits_holds_out_its_last_rows(tmp_path: Path, count: int, tested: int) -> None:
    path = _jsonl(tmp_path / "rows.jsonl", count)
    train, test = (_values(read_split(path, split)) for split in ("train", "test"))
    assert train + test == [str(i) for i in range(count)]
    assert len(test) == tested


def test_a_single_row_can_be_tested_on_but_not_trained_on(tmp_path: Path) -> None:
    path = _jsonl(tmp_path / "rows.jsonl", 1)
    assert _values(read_split(path, "test")) == ["0"]
    with pytest.raises(DatasetError, match="only row is held out"):
        read_split(path, "train")


def test_rows_without_splits_have_only_train_and_test() -> None:
    with pytest.raises(DatasetError, match="no split 'validation'"):
        held_out([1, 2], "validation", "rows")


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DatasetError, match="no rows"):
        read_split(path, "test")


def test_a_folder_has_one_file_per_split(tmp_path: Path) -> None:
    _jsonl(tmp_path / "train.jsonl", 30, "a")
    pyarrow.parquet.write_table(pyarrow.table({"n": ["b0", "b1"]}), tmp_path / "test.parquet")
    assert len(read_split(tmp_path, "train")) == 30
    assert _values(read_split(tmp_path, "test")) == ["b0", "b1"]


def test_a_folder_without_test_divides_its_train_file(tmp_path: Path) -> None:
    _jsonl(tmp_path / "train.jsonl", 30)
    assert [len(read_split(tmp_path, split)) for split in ("train", "test")] == [27, 3]


def test_numbered_files_are_read_in_order(tmp_path: Path) -> None:
    for number in (1, 0):
        table = pyarrow.table({"n": [f"{number}"]})
        pyarrow.parquet.write_table(table, tmp_path / f"test-0000{number}-of-00002.parquet")
    assert _values(read_split(tmp_path, "test")) == ["0", "1"]


def test_two_files_for_one_split_are_an_error(tmp_path: Path) -> None:
    _jsonl(tmp_path / "train.jsonl", 2)
    pyarrow.parquet.write_table(pyarrow.table({"n": ["0"]}), tmp_path / "train.parquet")
    with pytest.raises(DatasetError, match=r"train\.jsonl, train\.parquet"):
        read_split(tmp_path, "train")


def test_a_folder_without_the_split_is_an_error(tmp_path: Path) -> None:
    _jsonl(tmp_path / "test.jsonl", 2)
    with pytest.raises(DatasetError, match="no rows for the split 'train'"):
        read_split(tmp_path, "train")
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(DatasetError, match="no rows for the split 'test'"):
        read_split(tmp_path, "test")


@pytest.mark.parametrize(
    ("name", "fault"), [("gone.jsonl", "no file "), ("rows.xml", r"named '\*\.xml' cannot be read")]
)
def test_a_missing_or_unknown_file_is_an_error(tmp_path: Path, name: str, fault: str) -> None:
    (tmp_path / "rows.xml").write_text("n\n1\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=fault):
        read_split(tmp_path / name, "train")


def test_what_the_system_refuses_to_read_is_an_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    with pytest.raises(DatasetError, match="no file"):
        read_split(loop, "train")
    with pytest.raises(DatasetError, match="cannot be read: File name too long"):
        read_split(tmp_path / ("x" * 300 + ".jsonl"), "train")
