"""Checkpoints: sealed with digests, passed over when a bit of them flipped, dropped by their steps."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_run import made_run

from grpo.core.record.checkpoint import (
    COMPLETE,
    damage,
    drop_older,
    last_checkpoint,
    lost_steps,
    newest_step,
    rewind,
    seal,
)
from grpo.core.record.run_dir import (
    RolloutRow,
    RunDir,
    create_run_dir,
    read_metrics,
    read_rollouts,
    whole_folder,
    write_rollouts,
)
from grpo.plugins.errors import UsageError

FILES = ("model.safetensors", "optimizer.pt", "trainer_state.json")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return create_run_dir(tmp_path / "run", {"env": "gsm8k"}, {"libraries": {}})


def checkpoint(run: RunDir, step: int, *, whole: bool = True) -> Path:
    folder = run.checkpoints / f"checkpoint-{step}"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_bytes(name.encode() * 50)
    if whole:
        seal(folder)
    return folder


def flip(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_the_last_checkpoint_is_the_newest_whole_one(run: RunDir) -> None:
    assert last_checkpoint(run) is None
    checkpoint(run, 9)
    ten = checkpoint(run, 10)
    broken = checkpoint(run, 11, whole=False)
    (broken / f".{COMPLETE}.unfinished").write_text("{")
    assert last_checkpoint(run) == ten


def test_a_checkpoint_that_lost_a_file_or_part_of_one_is_none(run: RunDir) -> None:
    folders = [run.checkpoints / f"checkpoint-{step}" for step in (2, 4, 6)]
    for folder in folders:
        folder.mkdir(parents=True)
        for name in ("model.safetensors", "optimizer.pt"):
            (folder / name).write_bytes(b"12345678")
        seal(folder)
    assert last_checkpoint(run) == folders[2]
    (folders[2] / "model.safetensors").unlink()
    assert last_checkpoint(run) == folders[1]
    (folders[1] / "optimizer.pt").write_bytes(b"1234")
    assert last_checkpoint(run) == folders[0]
    rewind(run, 6)
    assert list(run.checkpoints.iterdir()) == [folders[0]]


@pytest.mark.parametrize("name", [*FILES, COMPLETE])
def test_one_flipped_bit_and_the_checkpoint_before_takes_its_place(name: str, run: RunDir) -> None:
    older, newer = checkpoint(run, 2), checkpoint(run, 4)
    size = (newer / name).stat().st_size
    for bit in (0, size * 4 + 3, size * 8 - 9):
        whole = (newer / name).read_bytes()
        flip(newer / name, bit)
        warnings: list[str] = []
        assert last_checkpoint(run, warnings.append) == older, bit
        assert len(warnings) == 1
        assert str(newer) in warnings[0]
        assert "damaged" in warnings[0]
        (newer / name).write_bytes(whole)
    assert last_checkpoint(run, warnings.append) == newer


def test_a_damaged_file_is_named(run: RunDir) -> None:
    folder = checkpoint(run, 1)
    assert damage(folder) is None
    flip(folder / "optimizer.pt", 77)
    assert damage(folder) == "optimizer.pt is not what was written: its digest differs"
    assert damage(folder, thorough=False) is None
    (folder / "optimizer.pt").write_bytes(b"1")
    assert damage(folder, thorough=False) == "optimizer.pt has 1 byte, not 600"
    (folder / "model.safetensors").unlink()
    assert damage(folder) == "model.safetensors is missing"


def test_without_any_whole_checkpoint_each_damaged_one_is_told_of(run: RunDir) -> None:
    for step in (1, 2):
        flip(checkpoint(run, step) / "model.safetensors", 5)
    warnings: list[str] = []
    assert last_checkpoint(run, warnings.append) is None
    assert ["checkpoint-2" in warnings[0], "checkpoint-1" in warnings[1]] == [True, True]


def test_a_copy_beside_the_checkpoints_is_left_alone(run: RunDir) -> None:
    whole = checkpoint(run, 4)
    copies = [run.checkpoints / name for name in ("checkpoint-4-before", "checkpoint-best", "checkpoint-tmp")]
    for copy in copies:
        shutil.copytree(whole, copy)
    assert last_checkpoint(run) == whole
    assert newest_step(run) == 4
    drop_older(run.checkpoints, 1)
    rewind(run, 2)
    assert sorted(run.checkpoints.iterdir()) == copies


def test_steps_before_the_checkpoint_that_the_record_lost_are_named(tmp_path: Path) -> None:
    run = made_run(tmp_path / "made", steps=8)
    assert [*lost_steps(run, 8, 1)] == []
    lines = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text(lines[0])
    (run.rollouts / "step-000003.parquet").unlink()
    kept = read_metrics(run)[0]["step"]
    lost = [step for step in range(1, 9) if step != kept]
    assert [*lost_steps(run, 8, 2)] == [
        f"the metrics of {len(lost)} steps were lost: {', '.join(map(str, lost[:5]))}, .... "
        "Curves and reports leave them out.",
        "the rollouts of 1 step were lost: 3. Curves and reports leave them out.",
    ]
    assert len([*lost_steps(run, 2, 2)]) == 1


def test_older_checkpoints_go_by_their_steps_whatever_the_clock_says(run: RunDir) -> None:
    """A clock that was set back makes the newest one the oldest file; one that is not whole counts for nothing."""
    for step, written in ((8, 3_000), (9, 2_000), (10, 1_000)):
        os.utime(checkpoint(run, step), (written, written))
    unfinished = checkpoint(run, 11, whole=False)
    drop_older(run.checkpoints, 2)
    left = {folder.name for folder in run.checkpoints.iterdir()}
    assert left == {"checkpoint-9", "checkpoint-10", unfinished.name}


@pytest.mark.usefixtures("umask")
def test_files_for_the_owner_alone_get_the_modes_of_all_others(run: RunDir) -> None:
    """safetensors writes with the mode 0600, which hides a model from the group that it was trained for."""
    with whole_folder(run.model) as folder:
        (folder / "weights").touch(0o600)
        (folder / "inner").mkdir()
        (folder / "inner" / "weights").touch(0o600)
    one = run.checkpoints / "checkpoint-1"
    one.mkdir()
    (one / "weights").touch(0o600)
    seal(one)
    files = [file for folder in (run.model, one) for file in folder.rglob("*") if file.is_file()]
    assert len(files) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o640}


@pytest.mark.slow
def test_no_flipped_bit_of_recorded_rollouts_changes_what_is_read(run: RunDir) -> None:
    scores = {"near": ("score", 0.25, None)}
    row = RolloutRow(1, 0, "[]", "twelve", 2, "stop", "{}", 1.0, -0.5, scores, token_ids=(3, 4), logprobs=(-0.5, -1.0))
    write_rollouts(run, 1, [row] * 8)
    file = run.rollouts / "step-000001.parquet"
    written, whole = read_rollouts(run, 1), file.read_bytes()
    for bit in range(0, len(whole) * 8, 61):
        flip(file, bit)
        try:
            assert read_rollouts(run, 1) == written, bit
        except UsageError as error:
            assert "was damaged" in str(error)  # noqa: PT017 - either is right
        file.write_bytes(whole)
