"""Chooses the `Player` for an environment by its budgets and chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo.core.config.settings import RolloutSettings
from grpo.core.env.episodes import Episode
from grpo.core.env.processes import processes_of
from grpo.core.rollout.turns.chat import TurnFormat, turn_format
from grpo.core.rollout.turns.play import Player, TurnLimits
from grpo.core.rollout.turns.tools import tool_format
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import PluginError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.env.mixture import RunEnv

NO_TURNS = TurnFormat("", "")


def players_of(
    envs: Sequence[RunEnv], rollout: RolloutSettings, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Player | None]:
    return {part.name: player_of(part.env, rollout, tokenizer, part.train) for part in envs}


def player_of(
    env: BoundEnv, rollout: RolloutSettings, tokenizer: PreTrainedTokenizerBase, episodes: Sequence[Episode]
) -> Player | None:
    """Returns what plays rollouts, or None for a single answer without steps. Raises UsageError, PluginError."""
    schemas = episodes[0].tools
    if schemas and env.spec.max_turns == 1:
        raise PluginError(
            f"env '{env.name}' ({env.distribution}) offers tools and has one turn only. A call and its answer take a "
            "turn each: its author must set max_turns to 2 or more."
        )
    if not env.spec.played:
        return None
    tools = tool_format(tokenizer, schemas) if schemas else None
    form = turn_format(tokenizer, episodes[0].prompt, schemas) if env.spec.max_turns > 1 else NO_TURNS
    limits = TurnLimits(
        turns=min(rollout.turns, env.spec.max_turns),
        tokens=rollout.length,
        seconds=env.call_limit(rollout.step_timeout),
    )
    return Player(env, tokenizer, form, limits, tools, processes_of(env, rollout.env_processes))
