"""Worked answers of several turns: an episode's actions in, the tokens of the rollout that they make out.

The environment is stepped with the actions of the demonstration, and its tools are called, in this thread and without
a time limit.
"""

from __future__ import annotations

from grpo.core.env.episodes import Episode
from grpo.core.env.prompts import encode_starts
from grpo.core.env.tools import ToolCall, answer, functions_of, used
from grpo.core.rollout.turns.play import Player
from grpo.core.rollout.turns.tools import ToolFormat
from grpo.plugins.errors import PluginError


def demonstrated(player: Player, episode: Episode) -> tuple[list[int], list[bool]]:
    """Returns the tokens of a demonstration with its prompt, and which of them are to be learned.

    Raises:
        PluginError: the environment raises at its own demonstration.
    """
    tokenizer = player.tokenizer
    (ids,) = encode_starts(tokenizer, [episode])
    learned = [False] * len(ids)
    env = player.env.make()
    try:
        env.reset(**dict(episode.reset))
        for number, action in enumerate(episode.actions, start=1):
            call = None if isinstance(action, str) else ToolCall(action["tool"], action["arguments"])
            text = str(action) if call is None else _tools(player).text(tokenizer, call)
            said = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            ids, learned = ids + said, learned + [True] * len(said)
            if number == len(episode.actions):
                break
            if call is not None:
                told = [answer(functions_of(env), call)]
                if used(env, "", [call], told):
                    break
                between = _tools(player).ids(tokenizer, [call], told, ids[-1])
            else:
                observation, _, terminated, truncated, _ = env.step(text)
                if terminated or truncated:
                    break
                between = player.form.ids(tokenizer, observation, ids[-1])
            ids, learned = ids + between, learned + [False] * len(between)
    except Exception as error:
        raise PluginError(
            f"env '{player.env.name}' ({player.env.distribution}) fails at the demonstration of row {episode.index}: "
            f"{type(error).__name__}: {error}. Check it with: grpo plugins check {player.env.name}"
        ) from error
    finally:
        env.close()
    return ids, learned


def _tools(player: Player) -> ToolFormat:
    if player.tools is None:
        raise ValueError("it calls a tool, and the environment offers none")
    return player.tools
