"""How far rollouts of several turns may go: the user's budgets and the environment in, checked limits out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpo.core.config.defaults import OBSERVED
from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import RolloutSection
from grpo.core.rollout.turns.chat import TurnFormat, turn_format
from grpo.core.rollout.turns.play import Player, TurnLimits
from grpo.core.rollout.turns.tools import tool_format
from grpo.core.rollout.types import context_length
from grpo.plugins.binding import BoundEnv
from grpo.plugins.errors import PluginError, UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.env.episodes import Episode
    from grpo.core.env.mixture import RunEnv

NO_TURNS = TurnFormat("", "")


def with_turns(config: RunConfig, envs: Sequence[BoundEnv], model_config: Any, longest: int) -> RunConfig:
    """Chooses the budgets of rollouts of several turns; `longest` is the longest prompt in tokens.

    Of several environments that with the most turns decides; the others keep to their own.

    Raises:
        UsageError: a budget that cannot work.
    """
    context = context_length(model_config)
    widest = max(envs, key=lambda env: env.spec.max_turns)
    limited = with_limits(config.rollout, widest, None if context is None else context - longest)
    return config.model_copy(update={"rollout": limited})


def turn_note(
    config: RunConfig, env: BoundEnv, tokenizer: PreTrainedTokenizerBase, episodes: Sequence[Episode]
) -> str | None:
    """Returns what a user should know of the chat template in rollouts of several turns, or None.

    Raises:
        UsageError: the chat template cannot go on with a conversation.
    """
    player = player_of(env, config.rollout, tokenizer, episodes)
    if player is None or player.form.note is None:
        return None
    return (
        f"{player.form.note}. Training keeps the tokens that were sampled, so the policy learns with its earlier "
        "turns in view as it wrote them: keep them too where you use it."
    )


def with_limits(rollout: RolloutSection, env: BoundEnv, room: int | None) -> RolloutSection:
    """Chooses the budgets of rollouts that the user left open.

    Args:
        rollout: with `max_completion_length` chosen.
        env: the environment.
        room: tokens of the model's context beside the longest prompt, or None when nobody knows the context.

    Raises:
        UsageError: a budget that cannot work, or one that would do nothing.
    """
    most = env.spec.max_turns
    turn = rollout.max_completion_length
    assert turn is not None
    if most == 1:
        idle = [name for name in ("max_turns", "max_rollout_length") if getattr(rollout, name) is not None]
        if idle:
            raise UsageError(f"rollout.{idle[0]}: env '{env.name}' has only one turn. Leave it out.")
        return rollout
    turns = rollout.max_turns or most
    if turns > most:
        raise UsageError(f"rollout.max_turns {turns}: env '{env.name}' takes at most {most} turns. Lower it.")
    length = rollout.max_rollout_length
    if length is None:
        length = turns * (turn + OBSERVED)
        length = length if room is None else min(length, room)
    elif length < turn:
        raise UsageError(
            f"rollout.max_rollout_length {length} is less than one turn (rollout.max_completion_length {turn}). Raise "
            "the one or lower the other."
        )
    elif room is not None and length > room:
        raise UsageError(
            f"rollout.max_rollout_length {length}: beside the longest prompt the model's context has room for {room} "
            "tokens. Lower it, or leave it out to use all of them."
        )
    return rollout.model_copy(update={"max_turns": turns, "max_rollout_length": length})


def narrowed(rollout: RolloutSection, env: BoundEnv) -> RolloutSection:
    """Returns the budgets of a run of several environments as far as they are one environment's."""
    most = env.spec.max_turns
    if most == 1:
        return rollout.model_copy(update={"max_turns": None, "max_rollout_length": None})
    return rollout.model_copy(update={"max_turns": min(rollout.max_turns or most, most)})


def players_of(
    envs: Sequence[RunEnv], rollout: RolloutSection, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Player | None]:
    """Returns each environment's name to what `player_of` returns for it."""
    return {part.name: player_of(part.env, rollout, tokenizer, part.train) for part in envs}


def player_of(
    env: BoundEnv, rollout: RolloutSection, tokenizer: PreTrainedTokenizerBase, episodes: Sequence[Episode]
) -> Player | None:
    """Returns what plays rollouts, or None for an environment that is answered once and never stepped.

    Raises:
        UsageError: the chat template cannot go on with a conversation, or with tools that the environment offers.
        PluginError: the environment offers tools and leaves no turn to use them.
    """
    schemas = episodes[0].tools
    if schemas and env.spec.max_turns == 1:
        raise PluginError(
            f"env '{env.name}' ({env.distribution}) offers tools and has one turn only. A call and its answer take a "
            "turn each: its author must set max_turns to 2 or more."
        )
    if not env.spec.played:
        return None
    tools = tool_format(tokenizer, schemas, known_response_template) if schemas else None
    form = turn_format(tokenizer, episodes[0].prompt, schemas) if env.spec.max_turns > 1 else NO_TURNS
    assert rollout.max_completion_length is not None
    limits = TurnLimits(
        turns=min(rollout.max_turns or 1, env.spec.max_turns),
        tokens=rollout.max_rollout_length or rollout.max_completion_length,
        seconds=rollout.step_timeout,
    )
    return Player(env, tokenizer, form, limits, tools)


def known_response_template(tokenizer: PreTrainedTokenizerBase) -> Any:
    """Returns what reads the calls of a chat template that TRL knows, or None."""
    from grpo.core.train.trainer import response_template_of

    return response_template_of(tokenizer)
