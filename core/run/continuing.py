"""Adapts a resumed run to more steps or another number of processes, and reports what would differ."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo.core.config.schema import RunConfig
from grpo.core.plan import Plan
from grpo.core.processes.rank import count
from grpo.core.processes.sharding import asked_sharding
from grpo.plugins.errors import UsageError

FALLING = ("linear", "cosine")  # schedules that end with the run
WHOLE = "nothing"  # is sharded


def sharded_as() -> str:
    """Returns what these processes share, in a word that a run keeps of itself."""
    return str(asked_sharding() or WHOLE)


def resized(config: RunConfig, recorded: Mapping[str, Any], checkpoint: Path | None) -> tuple[RunConfig, list[str]]:
    """Fits a run to the processes that resume it, and returns notes. Only the size of a micro batch changes.

    `recorded`: what the run recorded at its start; older runs say nothing of processes. `checkpoint`: None: from the
    beginning. Raises UsageError if the checkpoint belongs to the processes that wrote it.
    """
    sharding = recorded.get("sharding")
    if checkpoint is not None and sharding not in (None, sharded_as()):
        raise UsageError(
            f"the processes of this run shared {sharding}, and {sharded_as()} now: the optimizer's state in "
            "its checkpoints is read by what wrote it only. Resume it as it was started, or start a new run from "
            "its weights with --model."
        )
    before = recorded.get("processes")
    if before in (None, count()):
        return config, []
    asked = f"the processes of this run were {before}, and are {count()} now"
    if checkpoint is not None:
        if config.rollout.ahead:
            raise UsageError(
                f"{asked}: with --ahead a checkpoint holds the batch that each of them had sampled ahead. Resume it "
                f"with {before}."
            )
        if any(checkpoint.glob("global_step*")):
            raise UsageError(
                f"{asked}: DeepSpeed wrote the optimizer's state in {before} parts. Resume it with as many."
            )
    train, notes = config.train, [f"{asked}: metrics continue up to rounding"]
    share = train.prompts_per_step * train.group_size // count()
    micro = train.micro_batch_size
    if micro is not None and share % micro:
        fits = max(size for size in range(1, min(micro, max(share, 1)) + 1) if share % size == 0)
        train = train.model_copy(update={"micro_batch_size": fits})
        notes = [f"{notes[0]}; micro batches have {fits} completions, not {micro}, to divide the share of a process"]
    return config.model_copy(update={"train": train}), notes


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
            f"model: grpo run --model {shlex.quote(str(path))} --steps {steps - had}"
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
