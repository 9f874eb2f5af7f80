"""Defines the events that observers of a run receive: frozen values, which cannot change the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run is about to make its first step."""

    run_dir: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepEnded:
    """An optimizer step ended; `metrics` is the row that was written to metrics.jsonl."""

    run_dir: str
    step: int
    metrics: Mapping[str, float | int | None]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run ended after `step` steps; `status` is "done", "interrupted" or "failed"."""

    run_dir: str
    step: int
    status: str


Event = RunStarted | StepEnded | RunEnded
