"""The forecast of a run: its intervals hold as often as they say, and what is not in sight is not promised."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo.core.timing.forecast import Forecast, Schedule, forecast, is_due
from grpo.core.timing.target import Range, reaches

PROMPTS, GROUP = 8, 8


def curve(
    seed: int, *, start: float, pace: float, bend: float = 0.0, steps: int = 200
) -> tuple[list[Any], list[float]]:
    """Accuracies as sampled, prompts of different difficulty, and the expected ones; the pace bends off by step 20."""
    random = np.random.default_rng(seed)
    odds, sampled, expected = math.log(start / (1 - start)), [], []
    for step in range(1, steps + 1):
        chances = 1 / (1 + np.exp(-(odds + random.normal(0, 1.0, PROMPTS))))
        sampled.append((step, float(random.binomial(GROUP, chances).sum() / (PROMPTS * GROUP))))
        expected.append(float(np.mean(1 / (1 + np.exp(-(odds + random.normal(0, 1.0, 2000)))))))
        odds += pace * (1 - bend if step > 20 else 1)
    return sampled, expected


@pytest.mark.parametrize("bend", [0.0, 0.5])
def test_the_step_of_a_target_lies_in_the_interval_in_four_of_five_runs(bend: float) -> None:
    held = 0
    for seed in range(1000, 1020):
        sampled, expected = curve(
            seed, start=0.2 + 0.01 * (seed % 10), pace=0.04 + 0.002 * (seed % 7), bend=bend, steps=400
        )
        found = reaches(sampled[:20], PROMPTS * GROUP, 0.8)
        reached = next(step for step, share in enumerate(expected, start=1) if share >= 0.8)
        held += found is not None and found.low <= reached <= found.high
    assert held >= 16


def test_an_interval_has_an_end_where_the_way_is_short_and_is_the_wider_the_longer_it_is() -> None:
    ends = []
    for target in (0.55, 0.65, 0.75):
        widths = []
        for seed in range(20):
            sampled, _ = curve(seed, start=0.2, pace=0.08)
            found = reaches(sampled[:20], PROMPTS * GROUP, target)
            assert found is not None
            widths.append(found.high - found.low)
        ends.append(float(np.median(widths)))
    assert ends[0] < ends[1] < ends[2]
    assert math.isfinite(ends[1])


def test_what_was_reached_is_said_with_its_step() -> None:
    sampled = [(step, 0.1 if step < 9 else 0.7) for step in range(1, 21)]
    assert reaches(sampled, 64, 0.5) == Range(10, 10)  # the middle of the first five with so high a mean


def test_a_flat_or_falling_curve_promises_nothing() -> None:
    flat, _ = curve(1, start=0.3, pace=0.0)
    found = reaches(flat[:20], 64, 0.9)
    assert found is None or math.isinf(found.high)
    falling, _ = curve(2, start=0.5, pace=-0.05)
    found = reaches(falling[:20], 64, 0.9)
    assert found is None or math.isinf(found.high)


def test_all_right_and_all_wrong_are_no_trouble() -> None:
    assert reaches([(step, 0.0) for step in range(1, 21)], 64, 0.5) is None
    right = reaches([(step, 1.0) for step in range(1, 21)], 64, 0.5)
    assert right is not None
    assert right.low <= 20


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


def test_a_target_is_forecast_from_step_20_on_and_nothing_at_the_end() -> None:
    early = forecast(rows_of(19), steps=100, completions=64, target=0.5)
    assert early is not None
    assert "accuracy" not in early.text()
    later = forecast(rows_of(20), steps=100, completions=64, target=0.5)
    assert later is not None
    assert later.reached is not None
    assert re.search(r"accuracy 50% (not before|at) step \d+", later.text())
    assert forecast(rows_of(20), steps=20, completions=64) is None
    assert forecast(rows_of(3), steps=20, completions=64) is None
    assert [step for step in range(1, 101) if is_due(step, 100)] == [5, 20, 25, 50, 75, 100]


@pytest.mark.slow
def test_a_run_and_its_continuation_tell_what_is_to_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from grpo.core.cli.main import cli

    out = str(tmp_path / "run")
    made = "--env gsm8k --reward proximity --prompts-per-step 2 --group-size 4 --max-completion-length 16 --eval-size 0"
    cli(["run", *made.split(), "--steps", "8", "--target-accuracy", "0.9", "--out", out], standalone_mode=False)
    assert "forecast   " in (before := capsys.readouterr().out)
    assert before.index("step 5 ") < before.index("forecast   ") < before.index("step 6 ")
    cli(["run", "--resume", out, "--steps", "21"], standalone_mode=False)
    after = capsys.readouterr().out
    assert "accuracy 90% " in next(line for line in after.splitlines() if line.startswith("forecast   "))


@pytest.mark.slow
def test_a_run_foresees_its_last_measurement_of_held_out_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.cli.main import cli
    from grpo.core.run import recorder as books

    seen: list[Any] = []

    def recording(rows: Any, **named: Any) -> Any:
        seen.append((named["schedule"].due(rows[-1]["step"]), [row["step"] for row in rows if "time/held_out" in row]))
        return forecast(rows, **named)

    monkeypatch.setattr(books, "forecast", recording)
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
