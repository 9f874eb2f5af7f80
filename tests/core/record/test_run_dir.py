"""The run directory: whole files whatever happens to the writer, and a way back to any checkpoint."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from grpo.core.display.progress import Silent
from grpo.core.record.checkpoint import rewind, seal
from grpo.core.record.disk import refuse_unwritable
from grpo.core.record.run_dir import (
    RolloutRow,
    RunDir,
    append_metrics,
    create_run_dir,
    exclusive,
    in_use,
    open_run_dir,
    read_json,
    read_metrics,
    read_rollouts,
    remove_folder,
    rollout_steps,
    started_in,
    whole_file,
    whole_folder,
    write_json,
    write_rollouts,
)
from grpo.core.record.trained import TrainedRow, read_trained, write_trained
from grpo.core.run.job import resume
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

WRITER = """
import sys
from pathlib import Path
from grpo.core.record.checkpoint import rewind
from grpo.core.record.run_dir import RunDir, append_metrics, read_metrics, rollout_steps
from grpo.core.record.run_dir import write_json, write_rollouts
from grpo.core.record.run_dir import RolloutRow, exclusive

run = RunDir(Path(sys.argv[1]))
outcome = {"near": ("score", 1.0, None)}
with exclusive(run):
    rows = read_metrics(run)
    step = rows[-1]["step"] if rows else 0
    rewind(run, step)
    while True:
        step += 1
        text = f"completion of step {step} " * 50
        write_rollouts(run, step, [RolloutRow(step, 0, "[]", text, 9, "stop", "{}", 1.0, 0.0, outcome)] * 16)
        append_metrics(run, {"step": step, "reward": 0.5} | {f"rewards/{number}": number / 7 for number in range(200)})
        write_json(run.state, {"step": step})
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return create_run_dir(tmp_path / "run", {"env": "gsm8k"}, {"libraries": {}})


def rollout(step: int, **changes: Any) -> RolloutRow:
    values: dict[str, Any] = {
        "step": step,
        "group": 0,
        "prompt": json.dumps([{"role": "user", "content": "7 ÷ 3 = ?\n"}]),
        "completion": "vier\u2028 \U0001f600 \x00",
        "tokens": 3,
        "finish_reason": "stop",
        "columns": "{}",
        "reward": 1.0,
        "advantage": -0.5,
        "outcomes": {"near": ("score", 1.0, None), "far": ("failure", None, "it broke")},
    }
    return RolloutRow(**(values | changes))


def checkpoint(run: RunDir, step: int, *, whole: bool = True) -> Path:
    folder = run.checkpoints / f"checkpoint-{step}"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    if whole:
        seal(folder)
    return folder


@pytest.mark.core
def test_kill_at_any_moment_leaves_readable_files_and_a_run_that_goes_on(run: RunDir) -> None:
    chance = random.Random(0)
    last = 0
    for _ in range(4):
        command = [sys.executable, "-c", WRITER, str(run.path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as writer:
            try:
                while len(read_metrics(run)) <= last + 1 and writer.poll() is None:
                    time.sleep(0.01)
                time.sleep(0.05 * chance.random())
            finally:
                writer.kill()
            assert writer.communicate()[1] == ""
        steps = [row["step"] for row in read_metrics(run)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) > last
        last = len(steps)
        assert set(rollout_steps(run)) - set(steps) <= {last + 1}, "at most the step under way has no metrics"
        for step in steps:
            texts = {row["completion"] for row in read_rollouts(run, step)}
            assert texts == {f"completion of step {step} " * 50}
        assert read_json(run.state)["step"] in (last - 1, last)
        assert not in_use(run), "the system lets go of the lock of a killed process"


def test_half_a_line_at_the_end_is_no_row_and_is_gone_after_a_rewind(run: RunDir) -> None:
    append_metrics(run, {"step": 1, "loss": None})
    with run.metrics.open("a") as file:
        file.write('{"step": 2, "lo')
    assert read_metrics(run) == [{"step": 1, "loss": None}]
    rewind(run, 1)
    append_metrics(run, {"step": 2})
    assert [row["step"] for row in read_metrics(run)] == [1, 2]


def test_a_rewind_drops_what_lies_after_a_step_and_keeps_the_rest(run: RunDir) -> None:
    for step in range(5):
        append_metrics(run, {"step": step})
        write_rollouts(run, step + 1, [rollout(step + 1)])
        write_trained(run, step + 1, [TrainedRow(0, [0.0, 0.25], [1.0, 1.0])])
    checkpoint(run, 1)
    checkpoint(run, 2)
    checkpoint(run, 4)
    checkpoint(run, 0, whole=False)
    rewind(run, 2)
    assert [row["step"] for row in read_metrics(run)] == [0, 1, 2]
    assert rollout_steps(run) == [1, 2]
    assert [list(read_trained(run, step)) for step in (1, 2, 3, 4, 5)] == [[0], [0], [], [], []]
    assert sorted(folder.name for folder in run.checkpoints.iterdir()) == ["checkpoint-1", "checkpoint-2"]
    write_rollouts(run, 4, [rollout(4)], wasted=True)  # of a step that was killed before its rollouts were written
    write_trained(run, 5, [TrainedRow(0, [0.0], [1.0])])
    rewind(run, 2)
    assert sorted(file.name for file in run.rollouts.iterdir()) == [
        f"{kind}-00000{step}.parquet" for kind in ("step", "trained") for step in (1, 2)
    ]
    rewind(run, -1)
    assert read_metrics(run) == []
    assert rollout_steps(run) == []
    assert list(run.checkpoints.iterdir()) == []


@pytest.mark.parametrize(
    "line", ["garbage", "[1]", "7", '{"reward": 1.0}', '{"step": "2"}', '{"step": 2, "loss": "x"}']
)
def test_a_damaged_line_of_metrics_is_named(run: RunDir, line: str) -> None:
    run.metrics.write_text(f'{{"step": 0, "loss": null}}\n{line}\n{{"step": 2}}\n')
    with pytest.raises(UsageError, match=r"metrics\.jsonl, line 2, was damaged"):
        read_metrics(run)


def test_damaged_records_are_named(run: RunDir) -> None:
    write_rollouts(run, 1, [rollout(1)])
    (run.rollouts / "step-000001.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(UsageError, match=r"step-000001\.parquet was damaged"):
        read_rollouts(run, 1)
    write_trained(run, 1, [TrainedRow(0, [0.0], [1.0])])
    assert read_trained(run, 1)[0] == TrainedRow(0, [0.0], [1.0])
    (run.rollouts / "trained-000001.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(UsageError, match=r"trained-000001\.parquet was damaged"):
        read_trained(run, 1)
    write_json(run.config, [])
    with pytest.raises(UsageError, match=r"config\.json was damaged"):
        resume(run.path, Host([]), Silent())


def test_rollouts_come_back_as_they_were_written(run: RunDir) -> None:
    rows = [
        rollout(3),
        rollout(3, reward=None, outcomes={"near": ("abstain", None, None), "far": ("score", 2.0, None)}),
    ]
    write_rollouts(run, 3, rows)
    first, second = read_rollouts(run, 3)
    assert first["completion"] == rows[0].completion
    assert json.loads(first["prompt"])[0]["content"] == "7 ÷ 3 = ?\n"
    assert (first["outcome.near"], first["score.near"], first["reason.far"]) == ("score", 1.0, "it broke")
    assert (first["score.far"], second["reward"], second["score.far"]) == (None, None, 2.0)


def test_verdicts_and_tokens_come_back_as_they_were_written(run: RunDir) -> None:
    write_rollouts(run, 1, [rollout(1, right=True, token_ids=(5, 70000), logprobs=(-0.5, -2.25)), rollout(1)])
    known, unknown = read_rollouts(run, 1)
    assert (known["right"], known["token_ids"], known["logprobs"]) == (True, [5, 70000], [-0.5, -2.25])
    assert (unknown["right"], unknown["token_ids"], unknown["logprobs"]) == (None, None, None)


def test_a_step_without_any_score_has_the_same_columns_as_others(run: RunDir) -> None:
    write_rollouts(run, 1, [rollout(1)])
    nothing = {"near": ("failure", None, "it broke"), "far": ("abstain", None, None)}
    write_rollouts(run, 2, [rollout(2, reward=None, outcomes=nothing)])
    schemas = [pq.read_schema(file) for file in sorted(run.rollouts.glob("*.parquet"))]
    assert schemas[0].equals(schemas[1])


def test_rollouts_of_a_missing_step_say_which_there_are(run: RunDir) -> None:
    with pytest.raises(UsageError, match="has no rollouts of step 4; it has none yet"):
        read_rollouts(run, 4)
    write_rollouts(run, 2, [rollout(2)])
    with pytest.raises(UsageError, match="it has steps 2 to 2"):
        read_rollouts(run, 4)


@pytest.mark.parametrize(
    "name", ["abc", "-00001", "1", "0000001", "99999999999", "4294967297", "00000\u0669", "000001.old", "000001 "]
)
def test_a_file_that_no_run_names_so_is_no_step(run: RunDir, name: str) -> None:
    write_rollouts(run, 1, [rollout(1)])
    write_rollouts(run, 1_000_000, [rollout(1_000_000)])
    shutil.copy(run.rollouts / "step-000001.parquet", run.rollouts / f"step-{name}.parquet")
    assert rollout_steps(run) == [1, 1_000_000]


def fail_to_write_the_state(run: RunDir) -> None:
    with whole_file(run.state) as unfinished:
        unfinished.write_text("half")
        raise OSError("the disk is full")


def fail_to_write_the_model(run: RunDir) -> None:
    with whole_folder(run.model) as folder:
        (folder / "weights").write_text("half")
        raise OSError("the disk is full")


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(run: RunDir) -> None:
    write_json(run.state, {"step": 1})
    with pytest.raises(OSError, match="disk"):
        fail_to_write_the_state(run)
    assert read_json(run.state) == {"step": 1}
    with pytest.raises(OSError, match="disk"):
        fail_to_write_the_model(run)
    assert not run.model.exists()
    assert sorted(path.name for path in run.path.iterdir()) == sorted(
        [".lock", "checkpoints", "config.json", "rollouts", "state.json", "versions.json"]
    )


def test_nothing_that_stands_under_an_unfinished_name_is_written_through(run: RunDir, tmp_path: Path) -> None:
    """A run that a stranger made may hold a link there to a file of whoever labels or exports it."""
    precious, elsewhere = tmp_path / "precious", tmp_path / "elsewhere"
    precious.write_text("mine")
    elsewhere.mkdir()
    (run.path / ".labels.json.unfinished").symlink_to(precious)
    (run.path / ".model.unfinished").symlink_to(elsewhere, target_is_directory=True)
    write_json(run.labels, {"note": "x"})
    with whole_folder(run.model) as folder:
        (folder / "weights").write_text("w")
    assert precious.read_text() == "mine"
    assert list(elsewhere.iterdir()) == []
    assert read_json(run.labels) == {"note": "x"}
    assert not run.labels.is_symlink()
    assert not run.model.is_symlink()


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_killed_writer_left_is_in_nobodys_way(run: RunDir, folder: bool) -> None:
    left = run.path / ".model.unfinished"
    if folder:
        left.mkdir()
        (left / "half").write_text("half")
    else:
        left.write_text("half")
    with whole_folder(run.model) as place:
        (place / "weights").write_text("w")
    assert [path.name for path in run.model.iterdir()] == ["weights"]
    assert list(run.path.glob(".*")) == [run.lock]


def test_a_folder_takes_the_place_of_an_older_one_whole(run: RunDir) -> None:
    for name in ("old", "new"):
        with whole_folder(run.model) as folder:
            (folder / "inner").mkdir()
            (folder / "inner" / name).write_text(name)
    assert [path.name for path in (run.model / "inner").iterdir()] == ["new"]


def test_a_folder_is_gone_before_its_files_are(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    run.model.mkdir()
    (run.model / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove_folder(run.model)
    assert not run.model.exists()


def test_a_run_directory_is_held_by_one_process(run: RunDir) -> None:
    assert not in_use(run)
    with exclusive(run):
        assert in_use(run)
        with pytest.raises(UsageError, match="in use by a run that is still going"), exclusive(run):
            pass
    assert not in_use(run)


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_a_lock_that_no_run_made_is_refused_and_not_followed(run: RunDir, tmp_path: Path, what: str) -> None:
    """A link would make a file elsewhere, and a pipe would wait for ever."""
    made: dict[str, Callable[[], object]] = {
        "link": lambda: run.lock.symlink_to(tmp_path / "elsewhere"),
        "pipe": lambda: os.mkfifo(run.lock),
        "folder": run.lock.mkdir,
    }
    run.lock.unlink()
    made[what]()
    assert not in_use(run)
    with pytest.raises(UsageError, match=r"\.lock is not a file that a run makes\. Remove it"), exclusive(run):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_run_that_still_goes_is_refused_before_anything_of_it_is_read(run: RunDir) -> None:
    """What it does until it ends, a new checkpoint above all, would otherwise be dropped by who resumes it."""
    with exclusive(run), pytest.raises(UsageError, match="in use by a run that is still going"):
        resume(run.path, Host([]), Silent())


@contextmanager
def without_rights() -> Iterator[None]:
    """Gives up root's right to write everywhere, where there is one."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_run_that_may_only_be_read_is_listed_and_not_resumed() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        run = create_run_dir(Path(folder) / "run", {}, {})
        run.lock.touch()
        run.path.chmod(0o555)
        run.lock.chmod(0o444)
        Path(folder).chmod(0o755)
        with without_rights():
            assert not in_use(run)
            with pytest.raises(UsageError, match=r"cannot write in .*: Permission denied"), exclusive(run):
                pass
        run.path.chmod(0o755)


def test_two_runs_never_share_a_new_directory(run: RunDir) -> None:
    with pytest.raises(UsageError, match=r"cannot write the run directory .*: File exists.*--out"):
        create_run_dir(run.path, {"env": "other"}, {})
    assert read_json(run.config) == {"env": "gsm8k"}


def test_two_runs_that_begin_at_once_never_share_a_new_directory(run: RunDir) -> None:
    run.config.unlink()  # which the first one is about to write
    with exclusive(run), pytest.raises(UsageError, match="in use by a run that is still going"):
        create_run_dir(run.path, {"env": "other"}, {})
    assert not run.config.exists()


@pytest.mark.parametrize("missing", [["config.json"], ["config.json", "versions.json"]])
def test_a_run_that_was_killed_before_its_settings_were_written_begins_anew(run: RunDir, missing: list[str]) -> None:
    for name in missing:
        (run.path / name).unlink()
    (run.path / ".config.json.unfinished").write_text('{"env"')
    refuse_unwritable(run.path)
    assert create_run_dir(run.path, {"env": "other"}, {}) == run
    assert read_json(run.config) == {"env": "other"}
    run.config.unlink()
    write_rollouts(run, 1, [rollout(1)])
    with pytest.raises(UsageError, match="is not empty"):
        refuse_unwritable(run.path)
    with pytest.raises(UsageError, match="cannot write the run directory"):
        create_run_dir(run.path, {"env": "third"}, {})
    assert rollout_steps(run) == [1]


def test_what_is_no_run_is_named(tmp_path: Path, run: RunDir) -> None:
    assert open_run_dir(run.path) == run
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="grpo runs"):
            open_run_dir(path)


def test_a_broken_record_is_named(run: RunDir) -> None:
    run.config.write_text('{"env": ')
    with pytest.raises(UsageError, match=r"config\.json is not valid JSON"):
        read_json(run.config)


def test_half_a_surrogate_pair_anywhere_is_written_as_a_question_mark(run: RunDir) -> None:
    """It comes out of JSON escapes: a completion that a reward parses and quotes in its error must not end the run."""
    half = "a\ud800b"
    given = rollout(
        1, completion=half, columns=json.dumps({"x": half}, ensure_ascii=False), info=json.dumps({"failure": half})
    )
    write_rollouts(run, 1, [replace(given, outcomes={"near": ("failure", None, f"ValueError: {half}")})])
    [row] = read_rollouts(run, 1)
    assert row["completion"] == "a?b"
    assert row["reason.near"] == "ValueError: a?b"
    assert json.loads(row["columns"]) == {"x": "a?b"}


def test_a_run_knows_the_folder_for_which_its_relative_paths_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, other = tmp_path / "began", tmp_path / "other"
    for folder in (began, other):
        folder.mkdir()
    monkeypatch.chdir(began)
    run = create_run_dir(tmp_path / "run", {}, {})
    assert started_in(run) is None
    monkeypatch.chdir(other)
    assert started_in(run) == began
    began.rmdir()
    assert started_in(run) is None
