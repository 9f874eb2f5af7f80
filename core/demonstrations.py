"""Worked answers of several turns: an episode's actions in, the tokens of the rollout that they make out.

The environment is stepped with the actions of the demonstration, in this thread and without a time limit.
"""

from __future__ import annotations

from grpo.core.episodes import Episode
from grpo.core.policy import encode_prompts
from grpo.core.turns import Player
from grpo.plugins.errors import PluginError


def demonstrated(player: Player, episode: Episode) -> tuple[list[int], list[bool]]:
    """Returns the tokens of a demonstration with its prompt, and which of them are to be learned.

    Raises:
        PluginError: the environment raises at its own demonstration.
    """
    tokenizer = player.tokenizer
    (ids,) = encode_prompts(tokenizer, [episode.prompt])
    learned = [False] * len(ids)
    env = player.env.make()
    try:
        env.reset(**dict(episode.reset))
        for number, action in enumerate(episode.actions, start=1):
            said = [*tokenizer(action, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            ids, learned = ids + said, learned + [True] * len(said)
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated or number == len(episode.actions):
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
