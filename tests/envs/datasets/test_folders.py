"""Tables of texts, Arrow files, folders of `save_to_disk` and clones of hub repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from grpo.envs.datasets.files import read_files
from grpo.envs.datasets.folders import read_split
from grpo.envs.gsm8k.spec import GSM8K
from grpo.plugins.errors import DatasetError


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


def table(count: int, mark: str = "") -> Any:
    return pyarrow.table({"n": [f"{mark}{number}" for number in range(count)]})


def parquet(path: Path, count: int, mark: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table(count, mark), path)


def values(path: Path, split: str, subset: str | None = None) -> list[str]:
    return [row["n"] for _, row in read_split(path, split, subset)]  # type: ignore[index]


def test_the_fields_of_a_table_stay_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('\ufeffprompt,answer\n"two\nlines, one field",007\n\n"a ""b""",NA\n', encoding="utf-8")
    assert list(read_files([path])) == [
        (f"{path}, line 3", {"prompt": "two\nlines, one field", "answer": "007"}),
        (f"{path}, line 5", {"prompt": 'a "b"', "answer": "NA"}),
    ]
    tabs = tmp_path / "rows.tsv"
    tabs.write_text("prompt\tanswer\na, b\t1\n", encoding="utf-8")
    assert list(read_files([tabs])) == [(f"{tabs}, line 2", {"prompt": "a, b", "answer": "1"})]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"a,b\n1,2,3\n", "line 2: 3 fields where the first line names 2 columns"),
        (b"a,a\n1,2\n", "line 1: two columns of one name"),
        (b'a,b\n"1,2\n', r"not readable as a table.* Close every double quote"),
        (b"a,b\n\xff,2\n", "not readable as a table"),
    ],
)
def test_a_broken_table_is_named(tmp_path: Path, text: bytes, fault: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(text)
    with pytest.raises(DatasetError, match=fault):
        list(read_files([path]))


def test_arrow_files_and_streams_are_read(tmp_path: Path) -> None:
    whole = table(3)
    with pyarrow.ipc.new_file(tmp_path / "file.arrow", whole.schema) as writer:
        writer.write_table(whole)
    with pyarrow.ipc.new_stream(tmp_path / "stream.arrow", whole.schema) as writer:
        writer.write_table(whole)
    for name in ("file.arrow", "stream.arrow"):
        path = tmp_path / name
        assert [row for _, row in read_files([path])] == whole.to_pylist()
    (tmp_path / "bad.arrow").write_bytes(b"ARROW1nothing")
    with pytest.raises(DatasetError, match="not readable as Arrow"):
        list(read_files([tmp_path / "bad.arrow"]))


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    one = datasets.Dataset(table(20))
    one.save_to_disk(tmp_path / "one")
    assert len(values(tmp_path / "one", "train")) == 18
    assert values(tmp_path / "one", "test") == ["18", "19"]
    datasets.DatasetDict({"train": one, "test": datasets.Dataset(table(2, "t"))}).save_to_disk(tmp_path / "both")
    assert len(values(tmp_path / "both", "train")) == 20
    assert values(tmp_path / "both", "test") == ["t0", "t1"]
    datasets.DatasetDict({"test": one}).save_to_disk(tmp_path / "tests")
    assert len(values(tmp_path / "tests", "test")) == 20
    with pytest.raises(DatasetError, match=r"no rows for the split 'train' \(it has: test\)"):
        read_split(tmp_path / "tests", "train")


def test_a_clone_of_a_repository_is_read_where_it_lies(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    parquet(clone / "data" / "train-00000-of-00002.parquet", 3, "a")
    parquet(clone / "data" / "train-00001-of-00002.parquet", 2, "b")
    parquet(clone / "data" / "test-00000-of-00001.parquet", 1, "c")
    (clone / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    assert values(clone, "train") == ["a0", "a1", "a2", "b0", "b1"]
    assert values(clone, "test") == ["c0"]
    assert str(clone / "data") in read_split(clone, "train")[0][0]


CONFIGURED = """---
configs:
- config_name: main
  data_files: [{split: train, path: main/train-*}, {split: test, path: main/test-*}]
- config_name: other
  data_files: [{split: train, path: other/train-*}]
---
"""


def test_a_configuration_of_a_clone_is_chosen_by_its_name(tmp_path: Path) -> None:
    for name, mark in (("main", "m"), ("other", "o")):
        parquet(tmp_path / name / "train-00000-of-00001.parquet", 10, mark)
    parquet(tmp_path / "main" / "test-00000-of-00001.parquet", 1, "t")
    (tmp_path / "README.md").write_text(CONFIGURED, encoding="utf-8")
    assert values(tmp_path, "test", "main") == ["t0"]
    assert values(tmp_path, "test", "other") == ["o9"]
    with pytest.raises(DatasetError, match=r"main.*other.*with the option 'subset'"):
        read_split(tmp_path, "train")
    with pytest.raises(DatasetError, match="mian"):
        read_split(tmp_path, "train", "mian")


def test_a_clone_without_its_large_files_says_how_to_fetch_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train-00000-of-00001.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(DatasetError, match=r"a pointer of git-lfs and no data.* git lfs pull"):
        read_split(tmp_path, "train")


def test_gsm8k_reads_a_clone_with_its_configuration(tmp_path: Path) -> None:
    rows = pyarrow.table({"question": ["1 + 1?"] * 10, "answer": ["1 + 1 = 2\n#### 2"] * 10})
    for name in ("main", "other"):
        (tmp_path / name).mkdir()
        pyarrow.parquet.write_table(rows, tmp_path / name / "train-00000-of-00001.parquet")
    (tmp_path / "README.md").write_text(CONFIGURED.replace(", {split: test, path: main/test-*}", ""), encoding="utf-8")
    assert GSM8K.dataset is not None
    assert [row["answer"] for row in GSM8K.dataset("train", dataset=str(tmp_path), subset="other")] == ["2"] * 9


def test_a_folder_with_nothing_to_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no rows for the split 'train'"):
        read_split(tmp_path, "train")
    (tmp_path / "rows.csv").write_text("n\n1\n2\n")
    with pytest.raises(DatasetError, match="has no configurations"):
        read_split(tmp_path / "rows.csv", "train", "main")
