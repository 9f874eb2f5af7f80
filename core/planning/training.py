"""Decides how the policy is trained (data type, learning rates, micro batches), and warns of unlikely values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo.core.config import defaults
from grpo.core.config.defaults import Dtype, dtype_of
from grpo.core.config.schema import RunConfig
from grpo.core.planning.facts import Facts
from grpo.core.policy.load import refuse_impossible_lora
from grpo.plugins.errors import UsageError

MOST_TIMES_USUAL = 100  # of a learning rate
HOTTEST = 3.0  # temperature at which a policy still says what it has learned
MOST_COMPLETIONS = 1_000_000  # of one step


@dataclass(frozen=True, slots=True)
class OptimizerPart:
    """How the weights are trained, under the names of the settings."""

    lr: float
    warmup_lr: float
    dtype: Dtype


def decide_optimizer(config: RunConfig, facts: Facts) -> OptimizerPart:
    """Chooses the data type of the weights and the learning rates. Raises UsageError."""
    train, lora = config.train, config.lora
    refuse_impossible_lora(lora)
    if train.dtype == "float16" and not lora.enabled:
        raise UsageError(
            "train.dtype='float16' with full fine-tuning: Adam's squared gradients are too small for float16. Use "
            "bfloat16 or float32, or train an adapter with --lora."
        )
    lr = train.lr or usual_rate(config, facts)
    return OptimizerPart(
        lr=lr,
        warmup_lr=train.warmup_lr or lr * defaults.WARMUP_LR_FACTOR,
        dtype=dtype_of(train.dtype, None if facts.source.embedded else config.model),
    )


def usual_rate(config: RunConfig, facts: Facts) -> float:
    """Returns the learning rate of a run that names none."""
    factor = defaults.LORA_LR_FACTOR if config.lora.enabled else 1.0
    rate = defaults.DEFAULT_LR["embedded" if facts.source.embedded else "named"] * factor
    return round(rate, 12)  # as a person writes it: 0.0003, not 0.00030000000000000003


def slips(config: RunConfig, facts: Facts, optimizer: OptimizerPart, model_config: Any) -> Iterator[str]:
    """Yields a sentence for each number far from the usual; it may be meant, so the run goes on."""
    usual = usual_rate(config, facts)
    if round(optimizer.lr / usual) > MOST_TIMES_USUAL:
        yield (
            f"a learning rate of {optimizer.lr:g} is {optimizer.lr / usual:,.0f} times the usual {usual:g}: "
            "the policy may collapse in its first steps. Try a lower one first."
        )
    if config.rollout.temperature > HOTTEST:
        yield (
            f"a temperature of {config.rollout.temperature:g} samples almost at random: few completions will be right. "
            "Usual is 1."
        )
    hidden = getattr(model_config.get_text_config(), "hidden_size", None)
    if config.lora.enabled and isinstance(hidden, int) and config.lora.rank > hidden:
        yield (
            f"a LoRA rank of {config.lora.rank} is over the model's hidden size of {hidden}: the adapter has more "
            "weights than full fine-tuning trains. Usual are 8 to 64."
        )


def refuse_uneven_batch(config: RunConfig, facts: Facts) -> None:
    """Raises UsageError where the completions of a step cannot be divided among processes and micro batches."""
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
    share, micro = total // processes, train.micro_batch_size
    if micro is not None and share % micro:
        raise UsageError(
            f"train.micro_batch_size {micro} does not divide the {share} completions of each process "
            f"({train.prompts_per_step} prompts x {train.group_size} completions / {processes} processes). "
            f"Choose one of {', '.join(map(str, _divisors(share)))}."
        )


def decide_batch(config: RunConfig, facts: Facts, prompt: int, after: int, *, turns: bool) -> int:
    """Chooses how many rows go through the model at once: more where they are short, as small products are slow.

    `prompt`, `after`: the most tokens of a prompt, and after it. `turns`: rows are of several turns, which share less.
    """
    train = config.train
    if train.micro_batch_size is not None:
        return train.micro_batch_size
    share = train.prompts_per_step * train.group_size // facts.processes
    most = share if facts.source.embedded else defaults.NAMED_MICRO_BATCH
    members = train.group_size if train.share_prompts and train.head == "grpo" else 1

    def fits(size: int) -> bool:
        if turns:
            return size == 1 or (size <= most and size * (prompt + after) <= defaults.ROLLOUT_MICRO_TOKENS)
        return size <= most or size * after + math.ceil(size / members) * prompt <= defaults.SHORT_MICRO_TOKENS

    return max(filter(fits, _divisors(share)))


def _divisors(share: int) -> list[int]:
    return [size for size in range(1, share + 1) if share % size == 0]
