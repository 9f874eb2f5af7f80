"""Offers the built-in advantages through a hook, as any package does. Importing them loads no torch."""

from __future__ import annotations

from grpo.core.train.advantages.baselines import group_mean, reinforce_plus_plus, rloo
from grpo.core.train.advantages.decoupled import gdpo
from grpo.core.train.advantages.pass_rate import maxrl, pass_at_k
from grpo.core.train.advantages.turns import return_to_go
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import AdvantageSpec

grpo_contract = 1


@hookimpl
def grpo_advantages() -> list[AdvantageSpec]:
    """Offers the advantages."""
    return [group_mean, rloo, reinforce_plus_plus, gdpo, maxrl, pass_at_k, return_to_go]
