"""A run is read as it goes on: nothing twice, nothing that is gone, and no more texts than somebody looks at."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_run import failed, grow, made_metrics, made_rollout, made_run

from grpo.core.record.list import list_runs
from grpo.core.record.run_dir import RolloutRow, append_metrics, exclusive, read_metrics, write_rollouts
from grpo.core.report.alarms import AlarmWatch
from grpo.core.report.scan import recorded_steps
from grpo.core.watch.followed import FollowedRun
from grpo.plugins.errors import UsageError


def names(followed: FollowedRun) -> list[tuple[int, int]]:
    columns = followed.shown.index.columns
    return list(zip(columns.get("step", ()), columns.get("number", ()), strict=True))


def test_a_run_grows_and_is_quiet_while_nothing_changes(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens")
    followed = FollowedRun(run)
    assert followed.renew(60)
    assert not followed.renew(60)
    assert followed.shown.index.count == 24
    grow(run, 4)
    assert followed.renew(60)
    assert names(followed) == [(step, number) for step in (1, 2, 3, 4) for number in range(8)]


def test_a_run_is_told_as_over_when_its_process_ends(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens")
    run.state.unlink()
    followed = FollowedRun(run)
    with exclusive(run):
        assert followed.renew(60)
        assert followed.line.status == "running"
    assert followed.renew(60)
    assert followed.line.status == "killed"
    assert [alarm.text for alarm in followed.alarms if alarm.kind == "state"] == ["the run was killed after step 3"]


def test_alarms_are_those_of_a_report_however_the_run_grew(tmp_path: Path) -> None:
    def change(row: RolloutRow, number: int) -> RolloutRow:
        return failed(row, "it broke") if number % 3 == 0 else replace(row, finish_reason="length")

    run = made_run(tmp_path / "pens", steps=3, change=change)
    followed = FollowedRun(run)
    followed.renew(60)
    for step in range(4, 9):
        rows = [change(made_rollout(step, number // 4, number % 4, 1.0), number) for number in range(8)]
        write_rollouts(run, step, rows)
        append_metrics(run, made_metrics(step, rows))
        followed.renew(60)
    watch = AlarmWatch("float32", read_metrics(run))
    for step, read in recorded_steps(run):
        watch.rollouts(step, read)
    whole = watch.alarms(list_runs(run.path)[0])
    assert whole
    assert list(followed.alarms) == whole


def test_a_run_that_went_on_from_an_earlier_step_is_read_anew(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=6)
    followed = FollowedRun(run)
    followed.renew(60)
    reading = followed.shown.number
    lines = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text("".join(lines[:4]))
    for step in (4, 5, 6):
        (run.rollouts / f"step-{step:06d}.parquet").unlink()
    grow(run, 4, skill=0.0)
    followed.renew(60)
    assert followed.shown.number != reading
    assert followed.shown.index.count == 32
    assert names(followed)[-1] == (4, 7)
    assert len(followed.shown.metrics) == 5


def test_a_damaged_step_is_named_and_hides_no_other(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=4)
    (run.rollouts / "step-000002.parquet").write_bytes(b"PAR1 nonsense")
    followed = FollowedRun(run)
    followed.renew(60)
    assert followed.shown.index.count == 24
    assert len(followed.shown.problems) == 1
    assert "step-000002.parquet was damaged" in followed.shown.problems[0]


def test_a_run_whose_directory_is_removed_says_so(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens")
    followed = FollowedRun(run)
    followed.renew(60)
    shutil.rmtree(run.path)
    with pytest.raises(UsageError, match="is gone"):
        followed.renew(60)


@pytest.mark.parametrize(("column", "value"), [("completion", None), ("group", -1), ("prompt", "[" * 200_000)])
def test_a_step_that_no_run_wrote_is_told_of_and_the_others_are_shown(
    tmp_path: Path, column: str, value: object
) -> None:
    run = made_run(tmp_path / "odd")
    file = run.rollouts / "step-000002.parquet"
    table = pq.read_table(file)
    values = pa.array([value, *table[column].to_pylist()[1:]], type=table.schema.field(column).type)
    pq.write_table(table.set_column(table.column_names.index(column), column, values), file)
    shutil.copy(file, run.rollouts / "step-abc.parquet")
    followed = FollowedRun(run)
    assert followed.renew(60)
    assert sorted({step for step, _ in names(followed)}) == [1, 3]
    [problem] = followed.shown.problems
    assert f"step-000002.parquet was damaged: '{column}' is" in problem


def test_alarms_that_fail_on_a_step_leave_its_rollouts_to_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(watch: AlarmWatch, step: int, rows: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(AlarmWatch, "rollouts", look)
    followed = FollowedRun(made_run(tmp_path / "odd"))
    assert followed.renew(60)
    assert followed.shown.index.count == 24
    assert followed.shown.problems[0] == "step 1 was damaged, so alarms leave it out: too deep"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("versions.json", "[1]"),
        ("versions.json", '{"plugins": {"a": 5}}'),
        ("versions.json", '{"plugins": [1]}'),
        ("config.json", "7"),
        ("config.json", '{"train": {}}'),
        ("config.json", '{"train": {"dtype": "x"}}'),
        ("config.json", '{"train": {"dtype": []}}'),
    ],
)
def test_settings_and_versions_that_no_run_writes_are_refused(tmp_path: Path, file: str, text: str) -> None:
    run = made_run(tmp_path / "odd")
    (run.path / file).write_text(text)
    with pytest.raises(UsageError, match=f"{file} does not hold what a run writes"):
        FollowedRun(run)
