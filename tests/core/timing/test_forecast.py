"""The forecast of a run: what is left, from the steps so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.timing.forecast import Forecast, Range, Schedule, forecast, is_due, span


def rows_of(count: int, seconds: float = 2.0, **others: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"step": 0, "held_out/accuracy": 0.1}]
    for step in range(1, count + 1):
        rows.append({"step": step, "time/step": seconds, "completions/mean_length": 100.0, "accuracy": 0.01 * step})
        rows[-1] |= others
    return rows


def test_time_and_tokens_to_the_end_are_those_of_the_steps_that_are_left() -> None:
    found = forecast(rows_of(10), steps=60, completions=64)
    assert found is not None
    assert (found.seconds.low, found.seconds.high) == (pytest.approx(80.0), pytest.approx(120.0))
    assert found.tokens == 50 * 64 * 100
    assert found.text() == "80 to 120 s to go, 320 k more tokens sampled"
    assert [span(Range(low, 1.4)) for low in (0.2, 1.1)] == ["up to 2 s", "1 to 2 s"]
    rows = rows_of(10, **{"sampling/per_completion": 1.5})
    rows[5]["time/held_out"] = 20.0
    beside = forecast(rows, steps=60, completions=64)
    assert beside is not None
    assert beside.seconds.low == pytest.approx(0.8 * (100 + 20 * 50 / 10))
    assert beside.tokens == 1.5 * 50 * 64 * 100


def test_evaluations_that_are_due_are_counted_before_one_was_made_between_steps() -> None:
    rows = rows_of(10, seconds=1.0)
    rows[0]["time/held_out"] = 10.0
    rows[4]["time/checkpoint"] = 2.0
    found = forecast(rows, steps=60, completions=64, schedule=Schedule(60, every=25, save_every=20))
    assert found is not None
    assert found.seconds.low == pytest.approx(0.8 * (50 * 1.0 + 3 * 10.0 + 3 * 2.0))  # after 25, 50 and 60; 20, 40, 60


@pytest.mark.parametrize(
    ("every", "step", "times"), [(25, 0, 4), (25, 24, 3), (25, 25, 2), (30, 0, 3), (30, 59, 1), (0, 0, 2), (0, 5, 1)]
)
def test_held_out_accuracy_is_due_before_the_first_step_every_so_many_and_after_the_last(
    every: int, step: int, times: int
) -> None:
    assert Schedule(60, every=every, save_every=20).due(step)["time/held_out"] == times


def test_a_step_that_took_long_widens_the_interval() -> None:
    rows = rows_of(20)
    rows[18]["time/step"] = 30.0
    found = forecast(rows, steps=60, completions=64)
    assert found is not None
    assert found.seconds.low == pytest.approx(0.8 * 80)
    assert found.seconds.high == pytest.approx(1.2 * 40 * (4 * 2.0 + 30.0) / 5)


def test_nothing_is_forecast_at_the_end_or_after_few_steps() -> None:
    assert forecast(rows_of(20), steps=20, completions=64) is None
    assert forecast(rows_of(3), steps=20, completions=64) is None
    assert [step for step in range(1, 101) if is_due(step, 100)] == [5, 20, 25, 50, 75, 100]


@pytest.mark.slow
def test_a_run_and_its_continuation_tell_what_is_to_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from grpo.core.cli.main import cli

    out = str(tmp_path / "run")
    made = "--env gsm8k --reward proximity --prompts-per-step 2 --group-size 4 --max-completion-length 16 --eval-size 0"
    cli(["run", *made.split(), "--steps", "8", "--out", out], standalone_mode=False)
    assert "forecast   " in (before := capsys.readouterr().out)
    assert before.index("step 5 ") < before.index("forecast   ") < before.index("step 6 ")
    cli(["run", "--resume", out, "--steps", "21"], standalone_mode=False)
    assert "forecast   " in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_foresees_its_last_measurement_of_held_out_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.cli.main import cli
    from grpo.core.run import recorder

    seen: list[Any] = []

    def recording(rows: Any, **named: Any) -> Any:
        seen.append((named["schedule"].due(rows[-1]["step"]), [row["step"] for row in rows if "time/held_out" in row]))
        return forecast(rows, **named)

    monkeypatch.setattr(recorder, "forecast", recording)
    made = "--env gsm8k --reward proximity --prompts-per-step 2 --group-size 4 --max-completion-length 16 --eval-size 4"
    cli(["run", *made.split(), "--steps", "6", "--out", str(tmp_path / "run")], standalone_mode=False)
    assert seen == [({"time/held_out": 1, "time/checkpoint": 0}, [0])]


def test_a_forecast_gets_shorter_with_the_time_and_the_steps_and_ends_with_either() -> None:
    made = Forecast(step=5, steps=25, seconds=Range(80, 120), tokens=1000, calls=40, dollars=2.0)
    later = made.later(15, 60.0)
    assert later is not None
    assert (later.seconds, later.tokens, later.calls, later.dollars) == (Range(20, 60), 500, 20, 1.0)
    late = made.later(15, 100.0)
    assert late is not None
    assert late.seconds == Range(0, 20)
    assert made.later(25, 60.0) is None
    assert made.later(15, 121.0) is None
