"""How exact a rollout engine has to be, and how much context it needs: a plan in, numbers out."""

from __future__ import annotations

from grpo.core.config.defaults import TOLERANCE
from grpo.core.config.schema import RunConfig
from grpo.core.plan import Plan
from grpo.core.rollout.types import context_length

SPARE = 16  # tokens of context beyond the longest prompt with its completion
SHORTEST = 256  # tokens of context at least, so that the fixed prompt of the proof is longer than a cache block


def tolerance_of(config: RunConfig) -> float:
    """Returns the mean difference of log-probabilities in nats that an engine's arithmetic explains."""
    assert config.train.dtype is not None
    return config.rollout.tolerance or TOLERANCE[config.train.dtype]


def engine_context(plan: Plan) -> int:
    """Returns how many tokens of context an engine needs: the longest prompt, its rollout, a little to spare."""
    from grpo.core.policy.load import load_model_config

    rollout = plan.config.rollout.max_rollout_length or plan.config.rollout.max_completion_length
    assert rollout is not None
    wanted = max(plan.longest_prompt + rollout + SPARE, SHORTEST)
    limit = context_length(load_model_config(plan.source.path))
    return wanted if limit is None else min(wanted, limit)
