"""Decides the number of optimizer steps, from rows and epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from grpo.core.config.defaults import EMBEDDED_STEPS, EPOCHS, MADE_EPISODES
from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import SectionName
from grpo.core.env.episodes import Episode
from grpo.core.planning.facts import Facts


@dataclass(frozen=True, slots=True)
class StepsPart:
    """The part of the settings that is decided here."""

    section: ClassVar[SectionName] = "train"
    steps: int
    limit: int | None


def decide_steps(config: RunConfig, facts: Facts, rows: Mapping[str, Sequence[Episode]]) -> StepsPart:
    """Chooses how many steps the run makes.

    Where its only environment makes its own episodes, their number is recorded as the limit, so that a resumed run
    makes as many whatever its steps.

    Args:
        rows: the episodes of the environments that have rows, by name.
    """
    train, iterations = config.train, config.loss.num_iterations
    made = episodes_to_make(config, train.limit, train.steps or EMBEDDED_STEPS)
    of_rows = sum(share for env, share in zip(facts.envs, facts.shares, strict=True) if env.name in rows)
    needed = math.ceil(sum(map(len, rows.values())) / of_rows) if rows else made
    steps = train.steps
    if steps is None:
        if facts.source.embedded and train.epochs is None:
            steps = EMBEDDED_STEPS
        else:
            generations = max(1, math.ceil((train.epochs or EPOCHS) * needed / train.prompts_per_step))
            steps = generations * iterations
    return StepsPart(steps, train.limit if rows or facts.several else made)


def episodes_to_make(config: RunConfig, limit: int | None, steps: int) -> int:
    """Returns how many episodes an environment without rows makes for a run of so many steps."""
    return limit or max(MADE_EPISODES, config.train.prompts_per_step * steps)
