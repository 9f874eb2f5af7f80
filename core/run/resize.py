"""Continues a run on another number of processes with settings that fit, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo.core.config.schema import RunConfig
from grpo.core.processes.rank import count
from grpo.core.processes.sharding import asked_sharding
from grpo.plugins.errors import UsageError

WHOLE = "nothing"  # is sharded


def sharded_as() -> str:
    """Returns what these processes share, in a word that a run keeps of itself."""
    return str(asked_sharding() or WHOLE)


def resized(config: RunConfig, recorded: Mapping[str, Any], checkpoint: Path | None) -> tuple[RunConfig, list[str]]:
    """Fits a run to the processes that resume it, and returns what a user should know of that.

    The prompts of a step and what a micro batch adds to its gradient are the same for any number of them; only the size
    of a micro batch has to divide the share of a process. `recorded`: what the run wrote down when it started; nothing
    of processes where it is older than that. `checkpoint`: that it goes on from, None from the beginning. Raises
    UsageError: what the checkpoint holds belongs to the processes that wrote it.
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
