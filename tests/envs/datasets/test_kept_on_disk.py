"""Rows of a file stay on disk, whichever environment reads them: each is checked once and read when it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo.core.env.episodes import episodes_of
from grpo.envs.datasets.stored import ReadRows
from grpo.plugins.errors import DatasetError
from grpo.plugins.host import Host

CLASS = """
class Desk:
    def reset(self, **row):
        return None

    def get_reward(self):
        return 1.0
"""


def task(number: int) -> dict[str, Any]:
    return {
        "question": f"Task {number}",
        "tests": ["assert True"],
        "numbers": [number + 1, 2],
        "target": 7,
        "prompt": [{"role": "user", "content": [{"type": "text", "text": f"Task {number}"}]}],
        "answer": str(number),
    }


@pytest.fixture
def desk(tmp_path: Path) -> str:
    (tmp_path / "desk.py").write_text(CLASS)
    return f"trl:{tmp_path}/desk.py:Desk"


@pytest.mark.parametrize("name", ["rows", "gsm8k", "code", "email", "countdown", "trl"])
def test_rows_of_a_file_are_read_when_they_are_asked_for(tmp_path: Path, desk: str, name: str) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(task(number)) + "\n" for number in (*range(19), 3)))
    env = Host.discover().env(f"{desk if name == 'trl' else name}:dataset={data}").settled()
    rows = env.rows("train")
    assert isinstance(rows, ReadRows)
    assert len(rows) == 18
    assert rows.places[4].endswith("rows.jsonl, line 5")
    assert [row["answer"] for row in rows] == [row["answer"] for row in (rows[number] for number in range(18))]
    assert len(set(rows.asked)) == 18
    held_out = env.rows("test")
    assert isinstance(held_out, ReadRows)
    assert held_out.asked[1] == rows.asked[3]
    assert len(episodes_of(env, "train", limit=None, unbounded=0)) == 18


@pytest.mark.parametrize("name", ["code", "email", "countdown", "trl"])
def test_a_row_that_cannot_be_used_is_named_before_any_is_asked_for(tmp_path: Path, desk: str, name: str) -> None:
    data = tmp_path / "rows.jsonl"
    broken = {"answer": "7"}
    data.write_text("".join(json.dumps(row) + "\n" for row in (*map(task, range(7)), broken, *map(task, range(8, 12)))))
    env = Host.discover().env(f"{desk if name == 'trl' else name}:dataset={data}")
    with pytest.raises(DatasetError, match=r"rows\.jsonl, line 8: "):
        env.rows("train")
