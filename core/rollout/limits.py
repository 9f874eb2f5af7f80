"""Computes how exact a rollout engine has to be and how much context it needs."""

from __future__ import annotations

from grpo.core.config.defaults import TOLERANCE
from grpo.core.config.settings import Settings
from grpo.core.plan import Plan
from grpo.core.rollout.types import context_length

SPARE = 16  # tokens of context beyond the longest prompt with its completion
SHORTEST = 256  # tokens of context at least, so that the fixed prompt of the proof is longer than a cache block


def precision_of(config: Settings) -> float:
    """Returns the mean difference of log-probabilities in nats, at a temperature of 1, that arithmetic explains."""
    return config.rollout.tolerance or TOLERANCE[config.train.dtype]


def tolerance_of(config: Settings) -> float:
    """Returns that of completions: a temperature below 1 multiplies what rounding leaves of the logits."""
    return config.rollout.tolerance or precision_of(config) / min(1.0, config.rollout.temperature)


def engine_context(plan: Plan) -> int:
    """Returns how many tokens of context an engine needs: the longest prompt, its rollout, a little to spare."""
    wanted = max(plan.longest_prompt + plan.config.rollout.length + SPARE, SHORTEST)
    limit = context_length(plan.model_config)
    return wanted if limit is None else min(wanted, limit)
