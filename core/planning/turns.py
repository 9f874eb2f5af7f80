"""How far rollouts of several turns may go: the user's budgets and the environment in, checked limits out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpo.core.config.defaults import OBSERVED
from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import RolloutSection
from grpo.core.rollout.turns.players import player_of
from grpo.core.rollout.types import context_length
from grpo.plugins.binding import BoundEnv
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.env.episodes import Episode


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
