"""Offers the built-in advantages through a hook, as any package does. Importing them loads no torch."""

from __future__ import annotations

from grpo.core.train.advantages.estimators import (
    gdpo,
    group_mean,
    maxrl,
    pass_at_k,
    reinforce_plus_plus,
    return_to_go,
    rloo,
)
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import AdvantageSpec

grpo_contract = 1


@hookimpl
def grpo_advantages() -> list[AdvantageSpec]:
    return [group_mean, rloo, reinforce_plus_plus, gdpo, maxrl, pass_at_k, return_to_go]
