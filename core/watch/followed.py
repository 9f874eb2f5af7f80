"""Follows the directory of a running run: its line, curves, alarms and rollout numbers; texts are read on demand."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from grpo.core.record.list import RunLine, list_runs
from grpo.core.record.run_dir import (
    LONGEST_SETTINGS,
    STEP_FILE,
    RunDir,
    in_use,
    read_json,
    read_metrics,
    read_rollouts,
    rollout_steps,
)
from grpo.core.report.alarms import Alarm, AlarmWatch, is_steady
from grpo.core.report.index import Index
from grpo.core.report.scan import Scan
from grpo.plugins.errors import UsageError

Metrics = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Reading:
    """The part of a run that was read so far, in the order of its steps."""

    scan: Scan  # the names that numbers of the index stand for
    index: Index  # the numbers of the rollouts
    watch: AlarmWatch
    metrics: Metrics = ()  # the rows of metrics.jsonl
    steps: list[int] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    stamp: tuple[int, int] | None = None  # of the file of the last step
    problems: list[str] = field(default_factory=list)
    number: int = field(default_factory=count().__next__)  # another one when the run went on from an earlier step


class FollowedRun:
    """A run directory, looked at again and again; `line` is its line in the list of runs.

    `shown`: what was read to its end. `alarms`: by step; none during the first reading. Raises UsageError for no run,
    or a damaged file.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.config, self.versions = _read(run.config), _read(run.versions)
        plugins = self.versions.get("plugins", {})
        if not isinstance(plugins, dict) or not all(isinstance(lock, dict) for lock in plugins.values()):
            raise UsageError(f"{run.versions} does not hold what a run writes. Restore it, or remove the run.")
        self.alarms: Sequence[Alarm] = ()
        self._version: tuple[object, ...] | None = None
        self.shown = self._reading = self._fresh()
        self.line = self._look()

    @property
    def unchanged(self) -> bool:
        """True while `renew` would find nothing new."""
        return not self.waiting and fingerprint(self.run) == self._version

    @property
    def waiting(self) -> int:
        """Steps that are still to be read."""
        return len(self._reading.waiting)

    def renew(self, seconds: float) -> bool:
        """Reads for about so long; returns whether anything was new. Raises UsageError: gone, or a damaged file."""
        if self.unchanged:
            return False
        version = fingerprint(self.run)
        if version != self._version:
            self.line = self._look()
            self._version = version
        until = time.monotonic() + seconds
        reading = self._reading
        while reading.waiting:
            self._take_in(reading, reading.waiting.popleft())
            if time.monotonic() > until:
                break
        if not reading.waiting:
            self.alarms = reading.watch.alarms(self.line)
            self.shown = reading
        return True

    def _fresh(self) -> Reading:
        scan = Scan(self.run)
        try:
            watch = AlarmWatch(self.config["train"]["dtype"], [], is_steady(read_json(self.run.versions)))
        except (KeyError, TypeError) as error:
            raise UsageError(f"{self.run.config} does not hold what a run writes: no dtype {error}.") from None
        return Reading(scan, Index(scan), watch)

    def _look(self) -> RunLine:
        if not self.run.path.is_dir():
            raise UsageError(f"{self.run.path} is gone.")
        [line] = list_runs(self.run.path)
        if line.problem is not None:
            raise UsageError(line.problem)
        metrics, steps = read_metrics(self.run), rollout_steps(self.run)
        if not self._goes_on(metrics, steps):
            self._reading = self._fresh()
            if not self.shown.steps:
                self.shown = self._reading
        reading = self._reading
        reading.metrics = metrics
        reading.watch.more(metrics)
        done = reading.steps[-1] if reading.steps else 0
        reading.waiting = deque(step for step in steps if step > done)
        return line

    def _goes_on(self, metrics: Metrics, steps: Sequence[int]) -> bool:
        reading = self._reading
        known = len(reading.metrics)
        if known > len(metrics) or (known and json.dumps(reading.metrics[-1]) != json.dumps(metrics[known - 1])):
            return False
        if not reading.steps:
            return True
        last = reading.steps[-1]
        return {*reading.steps} <= {*steps} and self._stamp(last) == reading.stamp

    def _take_in(self, reading: Reading, step: int) -> None:
        reading.stamp = self._stamp(step)
        rows: list[dict[str, Any]] = []
        try:
            rows = read_rollouts(self.run, step, tokens=False)
            reading.watch.rollouts(step, rows)
        except UsageError as error:
            reading.problems.append(str(error))
        except Exception as error:  # whatever stands in a text; the numbers of the step are sound
            reading.problems.append(f"step {step} was damaged, so alarms leave it out: {error}")
        reading.scan.add(step, rows)
        for number, row in enumerate(rows):
            reading.index.add(reading.index.count, step, number, row)
        reading.steps.append(step)

    def _stamp(self, step: int) -> tuple[int, int] | None:
        return stamp(self.run.rollouts / STEP_FILE.format(step))


def _read(path: Path) -> Mapping[str, Any]:
    record = read_json(path, longest=LONGEST_SETTINGS)
    if not isinstance(record, dict):
        raise UsageError(f"{path} does not hold what a run writes. Restore it, or remove the run.")
    return record


def fingerprint(run: RunDir) -> tuple[object, ...]:
    """Returns what changes whenever the run writes something, begins or ends."""
    files = (run.config, run.versions, run.state, run.metrics, run.rollouts, run.checkpoints, run.model)
    return in_use(run), *map(stamp, files)


def stamp(path: Path) -> tuple[int, int] | None:
    """Returns what changes whenever a file does: when it was written, and its size; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
