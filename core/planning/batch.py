"""Divides a generation into micro batches."""

from __future__ import annotations

from grpo.core.config.defaults import NAMED_MICRO_BATCH, ROLLOUT_MICRO_TOKENS
from grpo.core.config.schema import RunConfig
from grpo.core.planning.facts import Facts
from grpo.plugins.errors import UsageError

MOST_COMPLETIONS = 1_000_000  # of one step


def decide_batch(config: RunConfig, facts: Facts) -> int:
    """Chooses how many completions go through the model at once. Raises UsageError."""
    train, processes = config.train, facts.processes
    total = train.prompts_per_step * train.group_size
    if total > MOST_COMPLETIONS:
        raise UsageError(
            f"{train.prompts_per_step:,} prompts x {train.group_size:,} completions = {total:,} in one step, which are "
            f"in memory together; {MOST_COMPLETIONS:,} is the most. Lower train.prompts_per_step or train.group_size."
        )
    if total % processes:
        raise UsageError(
            f"{train.prompts_per_step} prompts x {train.group_size} completions = {total} cannot be shared by "
            f"{processes} processes. Choose train.prompts_per_step so that the product is a multiple of {processes}."
        )
    share = total // processes
    micro = train.micro_batch_size
    if micro is None:
        most = share if facts.source.embedded else min(NAMED_MICRO_BATCH, share)
        micro = max(size for size in range(1, most + 1) if share % size == 0)
    elif share % micro:
        raise UsageError(
            f"train.micro_batch_size {micro} does not divide the {share} completions of each process "
            f"({train.prompts_per_step} prompts x {train.group_size} completions / {processes} processes). "
            f"Choose one of {', '.join(str(n) for n in range(1, share + 1) if share % n == 0)}."
        )
    return micro


def decide_batch_of_turns(config: RunConfig, micro: int, context: int) -> int:
    """Returns the division for rows of several turns, which are several times as long as an answer.

    `micro`: that for answers. `context`: tokens of the longest row.
    """
    if config.train.micro_batch_size is not None:
        return micro
    most = max(1, ROLLOUT_MICRO_TOKENS // context)
    return max(size for size in range(1, min(micro, most) + 1) if micro % size == 0)
