"""Forecasts the rest of a run (time, tokens, judge calls) from the metrics of its steps so far.

The interval is that of the means of several steps in a row, and a fifth more on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

FIRST_TIME = 5  # steps before the first forecast
SECOND_TIME = 20  # and before the next one
LATELY = 20  # steps whose time counts
BLOCK = 5  # steps whose mean is compared
SLACK = 0.2
ASKS = "/completion_tokens"  # what a reward's metric is called that asks a model
REPEATS = 4  # forecasts in a run after the first ones
HELD_OUT, CHECKPOINT = "time/held_out", "time/checkpoint"  # what is done beside steps


@dataclass(frozen=True, slots=True)
class Range:
    """An interval of seconds."""

    low: float
    high: float

    def gpu_hours(self, gpus: int) -> str:
        return f"{self.low * gpus / 3600:.2g} to {self.high * gpus / 3600:.2g} GPU-hours"


@dataclass(frozen=True, slots=True)
class Schedule:
    """When what is done beside the steps of a run is due."""

    steps: int  # of the whole run
    # steps from one measurement of held-out accuracy to the next; 0: only before the first and after the last
    every: int
    save_every: int  # steps from one checkpoint to the next

    def due(self, step: int) -> dict[str, int]:
        """Returns how often each is still to come after a step; 0 is the beginning of the run."""
        measured = self.steps // self.every - step // self.every if self.every else 0
        measured += not self.every or self.steps % self.every > 0
        measured += step == 0
        return {HELD_OUT: measured, CHECKPOINT: self.steps // self.save_every - step // self.save_every}


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is still to come."""

    step: int  # after which it was made
    steps: int  # of the whole run
    seconds: Range  # to the end of the run
    tokens: float  # that will be sampled, about
    calls: float = 0.0  # of rewards that ask a model, to the end of the run, about; 0 without such a reward
    dollars: float | None = None  # for them, None without a price
    gpus: int = 0  # that the run takes

    def later(self, step: int, elapsed: float) -> Forecast | None:
        """Returns what is left of it after a later step; None where the run, or the time that it gave, is over."""
        if step >= self.steps or elapsed > self.seconds.high:
            return None
        left = (self.steps - step) / (self.steps - self.step)
        return replace(
            self,
            step=step,
            seconds=Range(max(0.0, self.seconds.low - elapsed), self.seconds.high - elapsed),
            tokens=self.tokens * left,
            calls=self.calls * left,
            dollars=None if self.dollars is None else self.dollars * left,
        )

    def text(self) -> str:
        parts = [f"{span(self.seconds)} to go", f"{short(self.tokens)} more tokens sampled"]
        if self.gpus:
            parts.append(self.seconds.gpu_hours(self.gpus))
        if self.calls:
            price = "" if self.dollars is None else f" (${self.dollars:,.2f})"
            parts.append(f"{self.calls:,.0f} calls of the judge{price}")
        return ", ".join(parts)


def is_due(step: int, steps: int) -> bool:
    """Returns whether a forecast is made after a step: twice early, and a few times more."""
    return step in (FIRST_TIME, SECOND_TIME) or (step > SECOND_TIME and step % max(1, steps // REPEATS) == 0)


def forecast(
    rows: Sequence[Mapping[str, Any]], *, steps: int, completions: int, gpus: int = 0, schedule: Schedule | None = None
) -> Forecast | None:
    """Makes a forecast from the metrics of a run so far; None where there is nothing to make it from, or left."""
    made = [row for row in rows if row["step"] > 0]
    if not made or made[-1]["step"] >= steps:
        return None
    step = made[-1]["step"]
    if sum(bool(row.get("time/step")) for row in made[-LATELY:]) < FIRST_TIME:
        return None
    lengths = [row["completions/mean_length"] for row in made[-LATELY:] if row.get("completions/mean_length")]
    waste = fmean([row.get("sampling/per_completion") or 1.0 for row in made[-LATELY:]])
    left = steps - step
    calls, dollars = judged(made[-LATELY:], completions * waste)
    return Forecast(
        step=step,
        steps=steps,
        seconds=seconds_of(rows, left, due=None if schedule is None else schedule.due(step)),
        tokens=left * completions * waste * fmean(lengths) if lengths else 0.0,
        calls=calls * left,
        dollars=None if dollars is None else dollars * left,
        gpus=gpus,
    )


def judged(rows: Sequence[Mapping[str, Any]], completions: float) -> tuple[float, float | None]:
    """Returns how often a step with so many completions asks a judge, and for how many dollars; None: no price."""
    calls, dollars = 0.0, []
    for name in sorted({key.removesuffix(ASKS) for row in rows for key in row if key.endswith(ASKS)}):
        own = [row for row in rows if row.get(name + ASKS) is not None]
        calls += completions * (1 - fmean(row.get(f"{name}/cached") or 0.0 for row in own))
        paid = [row[f"{name}/cost"] for row in own if row.get(f"{name}/cost") is not None]
        dollars += [completions * fmean(paid)] if paid else []
    return calls, sum(dollars) if dollars else None


def seconds_of(
    rows: Sequence[Mapping[str, Any]], left: int, *, of_last: int = LATELY, due: Mapping[str, int] | None = None
) -> Range:
    """Returns the seconds of `left` more steps and of what is due beside them, as the last ones took."""
    times = [float(row["time/step"]) for row in rows[-of_last:] if row.get("time/step")]
    beside = _beside(rows, left, due)
    means = [fmean(times[at : at + BLOCK]) for at in range(len(times) - BLOCK + 1)]
    return Range(left * min(means) * (1 - SLACK) + beside * (1 - SLACK), (left * max(means) + beside) * (1 + SLACK))


def _beside(rows: Sequence[Mapping[str, Any]], left: int, due: Mapping[str, int] | None) -> float:
    seconds = 0.0
    for name in (HELD_OUT, CHECKPOINT):
        done = [row for row in rows if row.get(name)]
        between = [row for row in done if row["step"] > 0]
        times = left * len(between) / sum(row["step"] > 0 for row in rows) if due is None else due[name]
        seconds += times * fmean(float(row[name]) for row in done) if done else 0.0
    return seconds


def span(seconds: Range) -> str:
    if seconds.high < 180:
        low, high = math.floor(seconds.low), math.ceil(seconds.high)
        return f"{low} to {high} s" if low else f"up to {high} s"
    if seconds.high < 2 * 3600:
        return f"{seconds.low / 60:.0f} to {math.ceil(seconds.high / 60)} min"
    return f"{seconds.low / 3600:.1f} to {seconds.high / 3600:.1f} h"


def short(count: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"
