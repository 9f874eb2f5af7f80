"""What the record of a run is found to say again: warnings of its health, canaries that drift, plugins that fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_run import failed, made_run
from patience import little_work

from grpo.core.monitor.hacking.signals import HackingWatch
from grpo.core.monitor.health import HealthWatch
from grpo.core.record.list import list_runs
from grpo.core.record.run_dir import RolloutRow, RunDir, append_metrics, read_metrics, write_json
from grpo.core.report.alarms import Alarm, AlarmWatch
from grpo.core.report.scan import recorded_steps


def alarms_of(run: RunDir) -> list[Alarm]:
    watch = AlarmWatch("float32", read_metrics(run))
    for step, rows in recorded_steps(run):
        watch.rollouts(step, rows)
    [line] = list_runs(run.path)
    return watch.alarms(line)


def test_a_run_without_trouble_has_none(tmp_path: Path) -> None:
    assert alarms_of(made_run(tmp_path / "run")) == []


def test_the_warnings_that_the_run_gave_are_found_again(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", change=lambda row, _: replace(row, finish_reason="length"))
    [alarm] = alarms_of(run)
    assert (alarm.step, alarm.kind) == (1, "health")
    assert alarm.text.startswith("100% of the completions of step 1 hit the length limit")


def test_a_reward_that_fails_is_told_once_with_its_first_reason(tmp_path: Path) -> None:
    def change(row: RolloutRow, number: int) -> RolloutRow:
        return failed(row, f"ValueError: {number}") if row.step == 2 and number in (3, 5) else row

    [alarm] = alarms_of(made_run(tmp_path / "run", change=change))
    text = "reward 'proximity' failed on 2 rollouts, first in step 2: ValueError: 3"
    assert alarm == Alarm(2, "failure", text, "proximity")


def test_an_environment_that_fails_is_told_by_its_own_name(tmp_path: Path) -> None:
    info = json.dumps({"failure": "KeyError: 'board'", "rewards": [0.0]})

    def change(row: RolloutRow, number: int) -> RolloutRow:
        return replace(row, finish_reason="error", info=info, messages="[]") if number == 1 else row

    [alarm] = alarms_of(made_run(tmp_path / "run", change=change))
    assert (alarm.kind, alarm.reward) == ("failure", "environment")
    assert alarm.text == "the environment failed on 3 rollouts, first in step 1: KeyError: 'board'"


def test_a_canary_is_told_when_it_gets_worse_and_not_while_it_stays_so(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    for step, drift in ((4, 0.0), (5, 0.25), (6, 0.25), (7, 0.5), (8, 0.0)):
        append_metrics(run, {"step": step, "canaries/proximity/drift": drift})
    found = [(alarm.step, alarm.kind, alarm.text) for alarm in alarms_of(run)]
    assert found == [
        (5, "canary", "canaries of 'proximity': 25% drifted, 0% before"),
        (7, "canary", "canaries of 'proximity': 50% drifted, 25% before"),
    ]


def test_a_run_that_was_killed_says_so(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    write_json(run.state, {"status": "running", "step": 3})
    assert [alarm.text for alarm in alarms_of(run)] == ["the run was killed after step 3"]


def test_a_reward_that_prefers_wrong_answers_is_told_of_with_its_rollouts(tmp_path: Path) -> None:
    def change(row: RolloutRow, number: int) -> RolloutRow:
        reward = 0.1 if row.right else 0.9
        return replace(row, reward=reward, outcomes={"proximity": ("score", reward, None)})

    alarms = alarms_of(made_run(tmp_path / "run", steps=16, groups=4, change=change))
    [alarm] = [one for one in alarms if one.kind == "hacking" and "prefers wrong completions" in one.text]
    assert f"Step {alarm.step}: " in alarm.text
    assert " See completions #" in alarm.text


def test_totals_that_overflow_are_looked_at_as_none(tmp_path: Path) -> None:
    def change(row: RolloutRow, number: int) -> RolloutRow:
        return replace(row, reward=float("inf") if number % 2 else float("-inf")) if row.step > 1 else row

    assert alarms_of(made_run(tmp_path / "run", steps=8, change=change)) == []


@pytest.mark.parametrize(
    ("kind", "watch", "method"),
    [("hacking", HackingWatch, "look"), ("health", HealthWatch, "batch"), ("health", HealthWatch, "metrics")],
)
def test_a_watch_that_fails_is_an_alarm_and_the_others_go_on(
    kind: str, watch: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(watch, method, fails)
    run = made_run(tmp_path / "run", change=lambda row, number: failed(row, "broke") if number == 3 else row)
    told, failure = alarms_of(run)
    assert (told.step, told.kind) == (1, kind)
    assert "is off for the rest of this run" in told.text
    assert "ValueError: nobody thought of this" in told.text
    assert failure.kind == "failure"


def test_the_metrics_of_many_steps_take_a_moment_each(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.5, "accuracy": 0.5, "entropy": 1.0} for step in range(1, 80_001)]
    watch = AlarmWatch("float32", rows)
    [line] = list_runs(made_run(tmp_path / "run").path)
    with little_work("the metrics"):
        assert watch.alarms(line) == []
