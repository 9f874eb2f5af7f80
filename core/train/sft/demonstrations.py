"""Turns worked answers of several turns into the tokens of the rollouts that they are.

An environment is stepped with the actions of its demonstrations and its tools are called, where and within the limits
that rollouts have (core/env/worked.py). A demonstration ends where a rollout of the run would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo.core.env.episodes import Action, Episode
from grpo.core.env.prompts import encode_episodes
from grpo.core.env.threads import Raised
from grpo.core.env.tools import ToolCall
from grpo.core.env.worked import WorkedTurn, play_worked
from grpo.core.rollout.turns.play import Player
from grpo.core.rollout.turns.tools import ToolFormat

Taught = tuple[list[int], list[bool]]  # the tokens of a demonstration with its prompt, and which are to be learned


def demonstrated(player: Player, episodes: Sequence[Episode], turn_tokens: int) -> list[Taught | Raised]:
    """Returns the tokens of demonstrations, or why one cannot be played.

    Args:
        turn_tokens: what a turn of the policy may have; the next turn begins only where that fits.
    """
    # Nobody reads what becomes of the last action.
    wanted = [(episode, episode.actions[: player.limits.turns][:-1]) for episode in episodes]
    prompts = encode_episodes(player.tokenizer, episodes)
    rollouts: list[Taught | Raised] = []
    for episode, prompt, done in zip(episodes, prompts, play_worked(player.envs, wanted, cuts=False), strict=True):
        if done.failed is not None:
            rollouts.append(done.failed)
            continue
        try:
            rollouts.append(_tokens(player, episode, prompt, done.turns, turn_tokens))
        except ValueError as error:
            rollouts.append(Raised(error))
    return rollouts


def _tokens(
    player: Player, episode: Episode, prompt: Sequence[int], turns: Sequence[WorkedTurn], turn_tokens: int
) -> Taught:
    ids, learned = list(prompt), [False] * len(prompt)
    most = len(prompt) + player.limits.tokens - turn_tokens
    for number, action in enumerate(episode.actions[: player.limits.turns]):
        text = _action_ids(player, action)
        ids, learned = ids + text, learned + [True] * len(text)
        if number == len(turns):  # the last action is not played
            break
        between = _between(player, turns[number], ids[-1])
        if between is None or len(ids) + len(between) > most:
            break
        ids, learned = ids + between, learned + [False] * len(between)
    return ids, learned


def _action_ids(player: Player, action: Action) -> list[int]:
    text = action if isinstance(action, str) else _tools(player).text(player.tokenizer, _call(action))
    return [*player.tokenizer(text, add_special_tokens=False)["input_ids"], player.tokenizer.eos_token_id]


def _between(player: Player, turn: WorkedTurn, last: int) -> list[int] | None:
    """Returns the tokens between a turn and the next one; None where the episode ended with it."""
    if turn.tool_answer is not None and not isinstance(turn.action, str):
        if turn.answer is not None:
            return None
        return _tools(player).ids(player.tokenizer, [_call(turn.action)], [turn.tool_answer], last)
    if turn.answer is None or turn.answer.ended:
        return None
    return player.form.ids(player.tokenizer, turn.answer.observation, last)


def _call(action: Mapping[str, Any]) -> ToolCall:
    return ToolCall(action["tool"], action["arguments"])


def _tools(player: Player) -> ToolFormat:
    if player.tools is None:
        raise ValueError("it calls a tool, and the environment offers none")
    return player.tools
