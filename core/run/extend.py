"""Extends a finished run to more steps, from its last checkpoint, and refuses or reports what would differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grpo.core.config.schema import RunConfig
from grpo.core.plan import Plan
from grpo.plugins.errors import UsageError

FALLING = ("linear", "cosine")  # schedules that end with the run


def refuse_steps(before: RunConfig, steps: int, done: int, *, over: bool, path: Path) -> None:
    """Refuses a number of steps that a run cannot be continued to."""
    had = before.train.steps or 0
    if over and steps <= had:
        raise UsageError(f"{path} has all of its {had} steps, so --steps {steps} leaves nothing to do. Name more.")
    if steps <= done:
        raise UsageError(f"{path} has a checkpoint of step {done}, so --steps {steps} leaves nothing to do. Name more.")
    if over and not done:
        raise UsageError(
            f"{path} has no whole checkpoint, only its model, so it cannot go on as it was. Start a new run from its "
            f"model: grpo run --model {path} --steps {steps - had}"
        )
    if steps % before.loss.num_iterations:
        raise UsageError(
            f"--steps {steps} is not a multiple of loss.num_iterations {before.loss.num_iterations}. Choose one."
        )


def longer_notes(before: RunConfig, plan: Plan, done: int) -> Iterator[str]:
    """Yields how a run that is made longer differs from one that had been asked for all its steps at once."""
    had, steps = before.train.steps, plan.config.train.steps
    if had == steps:
        return
    differs = []
    if before.train.lr_schedule in FALLING:
        differs.append(
            f"its learning rate followed the schedule '{before.train.lr_schedule}' of {had} steps until step {done}, "
            f"and follows that of {steps} from there"
        )
    for part in plan.envs:
        if part.env.ordered:
            differs.append(f"env '{part.name}' goes through its rows in order, spread over {steps} steps from there")
        elif part.env.spec.dataset is None:
            differs.append(f"env '{part.name}' goes on with its {len(part.train)} episodes and makes no others")
    if before.rollout.ahead:
        differs.append(f"the batch of step {done + 1} is sampled after step {done}, not ahead of it")
    if differs:
        yield f"{'; '.join(differs)}. Otherwise it is the same as a run that was started with {steps} steps."
