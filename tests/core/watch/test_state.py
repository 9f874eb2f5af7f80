"""What a page of `grpo watch` holds, block by block, while runs go on, begin again and are damaged."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_run import grow, made_run

from grpo.core.record.checkpoint import rewind
from grpo.core.record.run_dir import RolloutRow
from grpo.core.report import blocks
from grpo.core.watch import state
from grpo.core.watch.state import State, WatchedRuns
from grpo.plugins.errors import UsageError


def inflated(block: str | None) -> bytes:
    assert block is not None
    return zlib.decompress(base64.b64decode(block))


def about(found: State, run: int = 0) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(inflated(found.summary))["runs"][run]
    return told


def steps_of(watched: WatchedRuns, found: State, run: int = 0) -> list[int]:
    """The column of steps in the index."""
    data = inflated(watched.block(f"run{run}-index", found.version))
    return [*map(int, np.frombuffer(data[: 4 * about(found, run)["held"]], dtype="<u4"))]


def texts_of(watched: WatchedRuns, found: State, run: int = 0) -> list[str]:
    """The completions of all blocks."""
    numbers = range(len(about(found, run)["starts"]))
    read = [json.loads(inflated(watched.block(f"run{run}-texts{number}", found.version))) for number in numbers]
    return [rollout[2] for block in read for rollout in block["rollouts"]]


def test_blocks_hold_every_rollout_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(row: RolloutRow, number: int) -> RolloutRow:
        return replace(row, completion=f"{row.step}.{number} " + "x" * (100 * number))

    monkeypatch.setattr(state, "BLOCK_SIZE", 1000)  # so that a step has several
    run = made_run(tmp_path / "pens", steps=3, change=change)
    watched = WatchedRuns([run])
    found = watched.state()
    assert steps_of(watched, found) == [1] * 8 + [2] * 8 + [3] * 8
    said = about(found)
    assert said["recorded"] == said["held"] == 24
    assert {0, 8, 16} < {*said["starts"]}
    assert [text.split()[0] for text in texts_of(watched, found)] == [f"{s}.{n}" for s in (1, 2, 3) for n in range(8)]
    assert blocks.BLOCK_SIZE > 1000


def test_a_page_may_ask_for_texts_of_any_earlier_state_and_for_columns_of_the_last_two(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=1)
    watched = WatchedRuns([run])
    seen = [watched.state()]
    for step in (2, 3):
        grow(run, step)
        seen.append(watched.state())
    assert [len(steps_of(watched, found)) for found in seen[1:]] == [16, 24]
    assert watched.block("run0-index", seen[0].version) is None
    assert len(texts_of(watched, seen[0])) == 8


def test_a_run_that_went_on_from_an_earlier_step_is_another_one(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=3)
    watched = WatchedRuns([run])
    before = watched.state()
    rewind(run, 1)
    grow(run, 2, skill=0.0)
    with pytest.raises(UsageError, match="no rollouts of step 3"):
        watched.block("run0-texts2", before.version)
    after = watched.state()
    assert steps_of(watched, after) == [1] * 8 + [2] * 8
    assert watched.block("run0-texts0", before.version) is None, "of other rollouts, by now"
    assert len(texts_of(watched, after)) == 16


def test_a_long_run_is_shown_as_far_as_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PATIENCE", 0.0)  # one step at a time
    run = made_run(tmp_path / "pens", steps=5)
    watched = WatchedRuns([run])
    seen: list[Any] = []
    while not seen or seen[-1].waiting:
        seen.append(watched.state())
    assert [found.waiting for found in seen] == [4, 3, 2, 1, 0]
    assert [about(found)["recorded"] for found in seen] == [8, 16, 24, 32, 40]
    assert steps_of(watched, seen[-2]) == steps_of(watched, seen[-1])[:32]
    assert watched.state() is seen[-1]


def test_several_runs_stand_side_by_side_under_names_of_their_own(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / place / "pens", steps=steps) for place, steps in (("one", 1), ("two", 2))]
    watched = WatchedRuns(runs)
    found = watched.state()
    assert [about(found, number)["name"] for number in (0, 1)] == ["one/pens", "two/pens"]
    assert [len(texts_of(watched, found, number)) for number in (0, 1)] == [8, 16]
    assert watched.block("run2-index", found.version) is None


def test_a_file_that_was_damaged_is_an_alarm_and_the_others_are_shown(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=3)
    (run.rollouts / "step-000002.parquet").write_bytes(b"PAR1 half")
    watched = WatchedRuns([run])
    found = watched.state()
    assert steps_of(watched, found) == [1] * 8 + [3] * 8
    assert any("step-000002.parquet was damaged" in alarm["text"] for alarm in about(found)["alarms"])
    assert len(texts_of(watched, found)) == 16
