"""Datasets of the hub: the real client code against a hub on this machine, a local builder, and no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from patience import RUN

README = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train-*}
  - {split: test, path: main/test-*}
- config_name: short
  data_files:
  - {split: train, path: short/train-*}
---
"""
TRY = """
import json, sys
from grpo.envs.gsm8k.spec import GSM8K
from grpo.plugins.errors import DatasetError
for split, options in json.loads(sys.argv[1]):
    try:
        rows = GSM8K.dataset(split, **options)
        print(json.dumps([len(rows), rows[0], rows[-1]]))
    except DatasetError as error:
        print(json.dumps(str(error)))
"""


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _read(home: Path, asked: list[tuple[str, dict[str, Any]]], **environment: str) -> list[Any]:
    """Reads datasets in a fresh process whose hub cache is `home`."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TRY, json.dumps(asked)],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **environment},
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_gsm8k_comes_from_the_hub_and_then_from_its_cache(
    tmp_path: Path, shared_data: Path, serve_dataset: Any
) -> None:
    for split in ("train", "test"):
        with (shared_data / "gsm8k" / f"{split}.jsonl").open(encoding="utf-8", newline="\n") as file:
            _write(tmp_path / "repo" / "main" / f"{split}-00000-of-00001.parquet", [json.loads(line) for line in file])
    (tmp_path / "repo" / "README.md").write_text(README.partition("- config_name: short")[0] + "---\n")
    asked = [(split, {"dataset": "openai/gsm8k"}) for split in ("train", "test")]
    with serve_dataset("openai/gsm8k", tmp_path / "repo") as url:
        (train, first, _), (test, _, last) = _read(tmp_path / "home", asked, HF_ENDPOINT=url)
    assert (train, test) == (7473, 1319)
    assert first["answer"] == "72"
    assert first["solution"].endswith("#### 72")
    assert set(last) == {"question", "answer", "solution"}
    (again, _, _), _ = _read(tmp_path / "home", asked, HF_HUB_OFFLINE="1")
    assert again == 7473


@pytest.mark.slow
def test_other_datasets_subsets_and_faults(tmp_path: Path, serve_dataset: Any) -> None:
    repo = tmp_path / "repo"
    good = {"question": "q", "answer": "1", "topic": "sums"}
    _write(repo / "main" / "train-0.parquet", [good, {**good, "answer": "one"}])
    _write(repo / "main" / "test-0.parquet", [good])
    _write(repo / "short" / "train-0.parquet", [{"problem": f"q{n}", "final": n} for n in range(20)])
    (repo / "README.md").write_text(README)
    short = {"subset": "short", "question": "problem", "answer": "final"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("test", {"subset": "main"}),
        ("train", {"subset": "main"}),
        ("train", short),
        ("test", short),
        ("validation", short),
        ("trian", {"subset": "main"}),
        ("train", {"subset": "gone"}),
        ("train", {}),
        ("train", {"dataset": "me/other"}),
    ]
    with serve_dataset("me/sums", repo) as url:
        answers = _read(tmp_path / "home", [(s, {"dataset": "me/sums", **o}) for s, o in asked], HF_ENDPOINT=url)
    test, bad_row, train, held, no_validation, typo, no_subset, no_choice, no_dataset = answers
    assert test[:2] == [1, {"topic": "sums", "question": "q", "answer": "1", "solution": "1"}]
    assert bad_row.startswith("me/sums (train), row 2: the gold answer 'one'")
    assert (train[0], held[0]) == (18, 2)
    assert (train[2]["question"], held[1]["question"]) == ("q17", "q18")
    assert no_validation == "me/sums has no split 'validation'. Its splits are: train."
    assert "Did you mean 'train'?" in typo
    assert "'gone' not found" in no_subset
    assert "'subset'" in no_choice
    assert "'me/other' cannot be loaded" in no_dataset
    assert all("\n" not in fault for fault in (bad_row, no_validation, typo, no_subset, no_choice, no_dataset))


@pytest.mark.slow
def test_without_a_network_the_error_names_the_remedy(tmp_path: Path) -> None:
    (fault,) = _read(tmp_path, [("train", {"dataset": "openai/gsm8k"})], HF_HUB_OFFLINE="1")
    assert fault.startswith("the hub's dataset 'openai/gsm8k' cannot be loaded: ")
    assert "dataset=FILE.jsonl" in fault
    assert "dataset=embedded" in fault
