"""Builds the parts of a run and hands each batch and step to them, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from transformers import TrainerCallback

from grpo.core.display.progress import Progress
from grpo.core.monitor.hacking.alarm import RunAlarm
from grpo.core.monitor.zero_signal import ZeroSignalWatch
from grpo.core.plan import Plan
from grpo.core.processes.group import wait
from grpo.core.processes.rank import is_first
from grpo.core.record.checkpoint import newest_step
from grpo.core.record.run_dir import Hold, RunDir, read_metrics, whole_file
from grpo.core.record.trained import TrainedRow
from grpo.core.run.canaries import RunCanaries
from grpo.core.run.recorder import Recorder
from grpo.core.run.scoring import Scoring
from grpo.core.track.trackers import Trackers
from grpo.core.train.batch.batch import Batch, refuse_overflow
from grpo.core.train.part import Part
from grpo.plugins.host import Host


class Parts(Part):
    """The parts of one run, wired to each other; every process but the first has no `hold`."""

    def __init__(
        self, plan: Plan, host: Host, run_dir: RunDir, progress: Progress, hold: Hold | None, scoring: Scoring
    ) -> None:
        self._charts = ExitStack()
        self._scoring = scoring
        self._restorer = None if hold is None else RunDirRestorer(run_dir, hold, progress.warned)
        self._recorder = Recorder(plan, host, run_dir, progress)
        trackers = Trackers(plan.config.output, run_dir, self._charts)
        self.callbacks: list[TrainerCallback] = list(trackers.callbacks)
        spans = None
        if "otel" in plan.config.output.report_to:
            from grpo.core.track.otel import StepSpans

            spans = StepSpans(plan.config.output, run_dir, progress.warned, self._charts)
            self.callbacks.append(spans)
        alarm = RunAlarm(plan, run_dir, progress, None if spans is None else spans.alarms)
        self._plan = plan
        self._recording: tuple[Part, ...] = (
            *((self._restorer,) if self._restorer is not None else ()),
            *((self._recorder,) if is_first() else ()),
            trackers,
        )
        recorded = read_metrics(run_dir) if is_first() else []
        self._watching: tuple[Part, ...] = (
            alarm,
            scoring,
            ZeroSignalWatch(plan.rewards, plan.config.failures.no_signal_steps, recorded),
            *((RunCanaries(plan, run_dir, scoring, progress),) if plan.canaries else ()),
        )

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Has the first process judge a batch, and every part handle it; returns their metrics."""
        if is_first():
            verdicts = self._scoring.judge(batch.completions)
            right, why = (tuple(getattr(verdict, name) for verdict in verdicts) for name in ("ok", "reason"))
            batch = replace(batch, right=right, why=why)
        metrics: dict[str, float] = {}
        for part in self._recording:
            metrics |= part.on_batch(batch)
        wait("the record of the batch")  # what ends the run is on record before any process leaves
        for part in self._watching:
            metrics |= part.on_batch(batch)
        refuse_overflow(batch, self._plan.rewards, self._plan.advantage)
        return metrics

    def on_step(self, row: Mapping[str, Any]) -> None:
        for part in (*self._recording, *self._watching):
            part.on_step(row)

    def started(self, measure: Callable[[], Mapping[str, float]]) -> None:
        """Measures what is measured before the first step, and records it as step 0."""
        began = time.perf_counter()
        measured = measure()
        if is_first() and measured:
            self._recorder.started({**measured, "time/held_out": time.perf_counter() - began})

    def trained(self, step: int, rows: Sequence[TrainedRow]) -> None:
        """Records what the tokens of a batch were trained with, on the first process."""
        if is_first():
            self._recorder.trained(step, rows)

    def unsaved(self) -> bool:
        """Returns whether a checkpoint is wanted at once, because the run directory was removed."""
        return self._restorer is not None and self._restorer.unsaved()

    def close(self) -> None:
        self._charts.close()


class RunDirRestorer(Part):
    """Makes a run directory again that was removed while the run goes on, and asks for a checkpoint then."""

    def __init__(self, run_dir: RunDir, hold: Hold, warned: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._hold = hold
        self._warned = warned
        self._kept = {file: file.read_bytes() for file in (run_dir.versions, run_dir.config)}
        self._removed = False

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Looks at the directory before the batch is written to it."""
        self.look()
        return {}

    def unsaved(self) -> bool:
        """Looks again; returns whether the checkpoints were removed and no other has been written since."""
        self.look()
        return self._removed and newest_step(self._run_dir) == 0

    def look(self) -> None:
        """Makes the directory again where it is gone, or part of it. Raises OSError if it cannot be made."""
        folders = [self._run_dir.rollouts, self._run_dir.checkpoints]
        if all(file.is_file() for file in self._kept) and all(folder.is_dir() for folder in folders):
            return
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for file, content in self._kept.items():
            with whole_file(file) as unfinished:
                unfinished.write_bytes(content)
        self._hold.renew()
        self._removed = True
        self._warned(
            f"{self._run_dir.path} was removed or moved during the run, with its records so far. It was created again, "
            "and a checkpoint follows after this step. To end the run, press Ctrl-C."
        )
