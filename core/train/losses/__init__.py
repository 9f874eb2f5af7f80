"""Offers the built-in losses through a hook, as any package does. Importing them loads no torch."""

from __future__ import annotations

from grpo.core.train.losses.clipped import bnpo, dapo, dr_grpo, entropy_bonus, gmpo, grpo, gspo, luspo, top_entropy
from grpo.core.train.losses.weighted import cispo, sapo, vespo
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import LossSpec

grpo_contract = 1


@hookimpl
def grpo_losses() -> list[LossSpec]:
    return [grpo, bnpo, dr_grpo, dapo, cispo, gspo, sapo, luspo, vespo, gmpo, entropy_bonus, top_entropy]
