"""Keeps the books of a run: batches and metrics in; files of the run directory, events and lines of the display out.

The first process alone keeps them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpo.core.display.progress import Progress
from grpo.core.env.scores import ELSEWHERE
from grpo.core.monitor.health import HEALTH, HealthWatch
from grpo.core.monitor.watchdog import Watchdog
from grpo.core.plan import Plan
from grpo.core.record.run_dir import RolloutRow, RunDir, append_metrics, read_metrics, write_rollouts
from grpo.core.record.trained import TrainedRow, write_trained
from grpo.core.scoring.outcome import Outcome
from grpo.core.text.stats import proportion
from grpo.core.timing.forecast import Schedule, forecast, is_due
from grpo.core.train.batch.env_metrics import env_metrics
from grpo.core.train.callbacks import metrics_row
from grpo.plugins.events import StepEnded
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

if TYPE_CHECKING:
    import torch

    from grpo.core.train.batch.batch import Batch


class Recorder:
    """The books of one run.

    Args:
        plan: what is trained on.
        host: passes events on to plugins.
        run_dir: where everything is written.
        progress: whoever watches.
    """

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

    def received(self, batch: Batch, right: Sequence[bool | None]) -> tuple[Sequence[RolloutRow], dict[str, float]]:
        """Writes the rollouts of a batch and looks at its health; returns them, and metrics.

        Args:
            batch: of all processes.
            right: whether each completion is right, None where nobody knows.
        """
        self._batch = batch
        rows = rollout_rows(batch, right)
        if batch.wasted:  # before the others, by which a step counts as recorded
            write_rollouts(self._run_dir, batch.step, wasted_rows(batch), wasted=True)
        write_rollouts(self._run_dir, batch.step, rows)
        totals = [row.reward for row in rows]
        self._warn(batch.step, lambda: self._health.batch(batch.step, batch.completions, totals))
        metrics = {"accuracy": proportion(right).mean} if self._plan.verifiers else {}
        if len(self._plan.envs) > 1:
            metrics |= env_metrics(batch, [part.name for part in self._plan.envs], right)
        return rows, metrics

    def trained(self, step: int, rows: Sequence[TrainedRow]) -> None:
        """Writes what the tokens of a batch were trained with."""
        write_trained(self._run_dir, step, rows)

    def step_ended(self, row: dict[str, Any]) -> None:
        """Writes the metrics of a step and tells everybody."""
        append_metrics(self._run_dir, row)
        self._rows.append(row)
        self._host.observe(StepEnded(str(self._run_dir.path), row["step"], row))
        batch = self._batch
        if batch is None:
            self._progress.stepped(row, None, {})
        else:
            shown = row["step"] % len(batch.completions)
            said = {name: outcomes[shown] for name, outcomes in batch.outcomes.items()}
            scores = {name: _shown(outcome) for name, outcome in said.items() if outcome != ELSEWHERE}
            self._progress.stepped(row, batch.completions[shown], scores)
        self._warn(row["step"], lambda: self._health.metrics(row))
        config = self._plan.config
        if is_due(row["step"], config.train.steps):
            found = forecast(
                self._rows,
                steps=config.train.steps,
                completions=config.train.prompts_per_step * config.train.group_size,
                gpus=self._gpus,
                schedule=Schedule(config.train.steps, config.evaluation.every, config.output.save_every),
            )
            if found is not None:
                self._progress.foreseen(found)

    def _warn(self, step: int, looks: Callable[[], Sequence[str]]) -> None:
        for warning in self._guarded.look(step, looks):
            self._progress.warned(warning)


def rollout_rows(batch: Batch, right: Sequence[bool | None]) -> list[RolloutRow]:
    """Makes the records of one generation, of which each completion is right, wrong or nobody knows."""
    totals: Sequence[float] = batch.advantages.totals.tolist()
    values: Sequence[float] = batch.advantages.values.tolist()
    earned, worth = batch.advantages.earned, batch.advantages.turns
    return [
        _row(
            batch.step,
            i // batch.group_size,
            completion,
            {name: outcomes[i] for name, outcomes in batch.outcomes.items()},
            reward=None if totals[i] != totals[i] else totals[i],
            advantage=values[i],
            right=right[i],
            turn_rewards=None if earned is None else _numbers(earned[i][: completion.turns]),
            turn_advantages=None if worth is None else _numbers(worth[i][: completion.turns]),
            sampled_by=(batch.sampled_by[i] if batch.sampled_by else ()) or None,
        )
        for i, completion in enumerate(batch.completions)
    ]


def wasted_rows(batch: Batch) -> list[RolloutRow]:
    """Makes the records of what was sampled in vain; a total it has none."""
    return [_row(batch.step, one.group, one.rollout.completion, one.outcomes) for one in batch.wasted]


def _row(
    step: int,
    group: int,
    completion: Completion,
    outcomes: Mapping[str, Outcome],
    *,
    reward: float | None = None,
    advantage: float = 0.0,
    right: bool | None = None,
    turn_rewards: Sequence[float] | None = None,
    turn_advantages: Sequence[float] | None = None,
    sampled_by: Sequence[tuple[int, int]] | None = None,
) -> RolloutRow:
    return RolloutRow(
        step=step,
        group=group,
        prompt=json.dumps(list(completion.prompt), ensure_ascii=False),
        completion=completion.text,
        tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        columns=json.dumps(dict(completion.row), ensure_ascii=False, default=str),
        messages=json.dumps(list(completion.messages), ensure_ascii=False) if completion.info else None,
        info=json.dumps(dict(completion.info), ensure_ascii=False) if completion.info else None,
        reward=reward,
        advantage=advantage,
        outcomes={name: (one.kind, one.score, one.reason) for name, one in outcomes.items() if one != ELSEWHERE},
        env=completion.env,
        right=right,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        turn_rewards=turn_rewards,
        turn_advantages=turn_advantages,
        sampled_by=sampled_by,
    )


def _numbers(values: torch.Tensor) -> list[float] | None:
    """Returns the numbers of a rollout's turns, None where it has no total."""
    found: list[float] = values.tolist()
    return None if any(math.isnan(one) for one in found) else found


def _shown(outcome: Outcome) -> str:
    return f"{outcome.score:.3g}" if outcome.score is not None else outcome.kind
