"""Records a run on the first process: writes batches and metrics, and passes them on to plugins and the display."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo.core.display.progress import Progress
from grpo.core.env.scores import ELSEWHERE
from grpo.core.monitor.health import HEALTH, HealthWatch
from grpo.core.monitor.watchdog import Watchdog
from grpo.core.plan import Plan
from grpo.core.record.run_dir import RunDir, append_metrics, read_metrics, write_rollouts
from grpo.core.record.trained import TrainedRow, write_trained
from grpo.core.scoring.outcome import Outcome
from grpo.core.text.stats import proportion
from grpo.core.timing.forecast import Schedule, forecast, is_due
from grpo.core.train.batch.batch import Batch
from grpo.core.train.batch.env_metrics import env_metrics
from grpo.core.train.batch.rollout_rows import rollout_rows, wasted_rows
from grpo.core.train.callbacks import metrics_row
from grpo.core.train.part import Part
from grpo.plugins.events import StepEnded
from grpo.plugins.host import Host


class Recorder(Part):
    """Records one run. `run_dir`: where everything is written."""

    def __init__(self, plan: Plan, host: Host, run_dir: RunDir, progress: Progress) -> None:
        self._plan = plan
        self._host = host
        self._run_dir = run_dir
        self._progress = progress
        self._health = HealthWatch(plan.config.train.dtype)
        self._guarded = Watchdog(HEALTH, lambda _, text: progress.warned(text))
        self._batch: Batch | None = None
        self._rows: list[dict[str, Any]] = list(read_metrics(run_dir))
        import torch  # by now it is loaded

        self._gpus = plan.processes if torch.cuda.is_available() else 0

    def started(self, held_out: Mapping[str, float]) -> None:
        """Writes what was measured before the first step, as step 0 of the metrics."""
        if held_out:
            row = metrics_row(0, held_out)
            append_metrics(self._run_dir, row)
            self._rows.append(row)

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Writes the rollouts of a batch and checks its health; returns its accuracy, of each environment too."""
        self._batch = batch
        rows = rollout_rows(batch)
        if batch.wasted:  # before the others, by which a step counts as recorded
            write_rollouts(self._run_dir, batch.step, wasted_rows(batch), wasted=True)
        write_rollouts(self._run_dir, batch.step, rows)
        totals = [row.reward for row in rows]
        self._warn(batch.step, lambda: self._health.batch(batch.step, batch.completions, totals))
        metrics = {"accuracy": proportion(batch.right).mean} if self._plan.verifiers else {}
        if len(self._plan.envs) > 1:
            metrics |= env_metrics(batch, [part.name for part in self._plan.envs], batch.right)
        return metrics

    def trained(self, step: int, rows: Sequence[TrainedRow]) -> None:
        write_trained(self._run_dir, step, rows)

    def on_step(self, row: Mapping[str, Any]) -> None:
        """Writes the metrics of a step and tells everybody."""
        append_metrics(self._run_dir, row)
        self._rows.append(dict(row))
        self._host.observe(StepEnded(str(self._run_dir.path), row["step"], row))
        batch = self._batch
        if batch is None:
            self._progress.stepped(row, None, {})
        else:
            shown = row["step"] % len(batch.completions)
            shown_outcomes = {name: outcomes[shown] for name, outcomes in batch.outcomes.items()}
            scores = {name: _shown(outcome) for name, outcome in shown_outcomes.items() if outcome != ELSEWHERE}
            self._progress.stepped(row, batch.completions[shown], scores)
        self._warn(row["step"], lambda: self._health.metrics(row))
        config = self._plan.config
        if is_due(row["step"], config.train.steps):
            estimate = forecast(
                self._rows,
                steps=config.train.steps,
                completions=config.train.prompts_per_step * config.train.group_size,
                gpus=self._gpus,
                schedule=Schedule(config.train.steps, config.evaluation.every, config.output.save_every),
            )
            if estimate is not None:
                self._progress.foreseen(estimate)

    def _warn(self, step: int, looks: Callable[[], Sequence[str]]) -> None:
        for warning in self._guarded.look(step, looks):
            self._progress.warned(warning)


def _shown(outcome: Outcome) -> str:
    return f"{outcome.score:.3g}" if outcome.score is not None else outcome.kind
