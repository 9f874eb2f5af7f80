"""Checks the token and turn budgets of multi-turn rollouts against the environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo.core.config.defaults import AGENT_CALLS, OBSERVED, ROLLOUT_TOKENS
from grpo.core.config.sections import RolloutSection
from grpo.core.config.settings import RolloutSettings
from grpo.core.planning.lengths import long_tools
from grpo.core.rollout.players import players_of
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.env.mixture import RunEnv


@dataclass(frozen=True, slots=True)
class TurnsPart:
    """The budgets of a rollout, under the names of their settings; None for environments of one turn."""

    max_turns: int | None
    max_rollout_length: int | None


def decide_turns(
    rollout: RolloutSection, envs: Sequence[BoundEnv], turn: int, room: int | None, *, agent: bool = False
) -> TurnsPart:
    """Chooses the rollout budgets that the user left open; of several environments that with the most turns decides.

    `turn`: tokens after which one is cut. `room`: tokens of the model's context beside the longest prompt, or None when
    unknown. `agent`: a program answers the tasks; a turn is a call of the policy then. Raises UsageError for a budget
    that cannot work, or does nothing.
    """
    env = max(envs, key=lambda candidate: candidate.spec.max_turns)
    most = env.spec.max_turns
    if agent:
        most = rollout.max_turns or AGENT_CALLS
    if most == 1 and not agent:
        idle = [name for name in ("max_turns", "max_rollout_length") if getattr(rollout, name) is not None]
        if idle:
            raise UsageError(f"rollout.{idle[0]}: env '{env.name}' has only one turn. Leave it out.")
        return TurnsPart(None, None)
    turns = rollout.max_turns or most
    if turns > most:
        raise UsageError(f"rollout.max_turns {turns}: env '{env.name}' takes at most {most} turns. Lower it.")
    length = rollout.max_rollout_length
    if length is None:
        length = min(turns * (turn + OBSERVED), max(ROLLOUT_TOKENS, turn))
        length = length if room is None else min(length, room)
    elif length < turn:
        raise UsageError(
            f"rollout.max_rollout_length {length} is less than one turn (rollout.max_completion_length {turn}). Raise "
            "the one or lower the other."
        )
    elif room is not None and length > room and agent:
        length = room  # an agent's prompts are its own; the budget says how long its rows may become
    elif room is not None and length > room:
        raise UsageError(
            f"rollout.max_rollout_length {length} does not fit: after the longest prompt the model's context has room "
            f"for {room} tokens. Lower it, or leave it out to use all of them."
        )
    return TurnsPart(turns, length)


def short_of_turns(rollout: RolloutSection, part: TurnsPart, turn: int, context: int | None) -> list[str]:
    """Returns where a budget that the user left open ends rollouts before they had all their turns."""
    if part.max_turns is None or part.max_rollout_length is None or rollout.max_rollout_length:
        return []
    length = part.max_rollout_length
    if part.max_turns * turn <= length:
        return []
    why, more = f"a rollout has {length:,} unless you say how many", "raise rollout.max_rollout_length"
    if context is not None and length < max(ROLLOUT_TOKENS, turn):
        why = f"after the longest prompt the model's context of {context:,} has room for {length:,}"
        more = "choose a model with a longer context"
    return [
        f"{part.max_turns} turns of up to {turn} tokens each may have {part.max_turns * turn:,} tokens, and {why}. "
        f"Rollouts with turns of full length end after {length // turn}. Lower rollout.max_turns or "
        f"--max-completion-length, or {more}."
    ]


def turn_notes(rollout: RolloutSettings, envs: Sequence[RunEnv], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Returns notes on the chat template and tools in multi-turn rollouts; UsageError if it cannot continue one."""
    players = players_of(envs, rollout, tokenizer).values()
    one_turn = [part.name for part in envs if not part.env.spec.played]
    unused = (
        f"--env-processes steps environments, and {', '.join(one_turn)} has one turn and is never stepped: it changes "
        "nothing."
    )
    return [
        *([unused] if rollout.env_processes and len(one_turn) == len(envs) else []),
        *(
            f"{player.form.note}. Training keeps the tokens that were sampled, so the policy learns with its earlier "
            "turns in view as it wrote them: keep them too where you use it."
            for player in players
            if player is not None and player.form.note is not None
        ),
        *(note for part in envs if (note := long_tools(part, tokenizer))),
    ]


def narrowed(rollout: RolloutSection, env: BoundEnv) -> RolloutSection:
    """Returns the budgets of a run of several environments as far as they are one environment's."""
    most = env.spec.max_turns
    if most == 1:
        return rollout.model_copy(update={"max_turns": None, "max_rollout_length": None})
    return rollout.model_copy(update={"max_turns": min(rollout.max_turns or most, most)})
