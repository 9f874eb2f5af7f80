"""Decides what trains, with which data type and at which learning rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpo.core.config.defaults import DEFAULT_LR, LORA_LR_FACTOR, WARMUP_LR_FACTOR, Dtype, dtype_of
from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import SectionName
from grpo.core.planning.facts import Facts
from grpo.core.policy.load import refuse_impossible_lora
from grpo.plugins.errors import UsageError


@dataclass(frozen=True, slots=True)
class OptimizerPart:
    """The part of the settings that is decided here."""

    section: ClassVar[SectionName] = "train"
    lr: float
    warmup_lr: float
    dtype: Dtype


def decide_optimizer(config: RunConfig, facts: Facts) -> OptimizerPart:
    """Chooses the data type of the weights and the learning rates.

    Raises:
        UsageError: quantised weights without what they need, or float16 where Adam cannot work in it.
    """
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
        warmup_lr=train.warmup_lr or lr * WARMUP_LR_FACTOR,
        dtype=dtype_of(train.dtype, None if facts.source.embedded else config.model),
    )


def usual_rate(config: RunConfig, facts: Facts) -> float:
    """Returns the learning rate of a run that names none."""
    factor = LORA_LR_FACTOR if config.lora.enabled else 1.0
    return DEFAULT_LR["embedded" if facts.source.embedded else "named"] * factor
