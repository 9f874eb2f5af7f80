"""Turns an environment's rows into episodes: what to ask, what rewards may read, and a worked answer if there is one.

In: a bound environment and a split. Out: one frozen `Episode` per row, in the rows' order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grpo.core.tools import Schema, schemas_of
from grpo.plugins.binding import BoundEnv
from grpo.plugins.errors import DatasetError, PluginError
from grpo.plugins.types import Completion, Message

if TYPE_CHECKING:
    from grpo.core.rollout import Sampled

Action = str | Mapping[str, Any]  # what the policy says, or a call of a tool
HELD_OUT_SEED = 2**20  # first seed of held-out episodes for environments that make their own


@dataclass(frozen=True, slots=True)
class Episode:
    """One start of an environment.

    Attributes:
        index: position among the episodes of its split.
        prompt: the chat messages to answer.
        row: the columns that rewards and verifiers read.
        demonstration: a worked answer in the environment's format, or for each turn one action or call of a tool
            (`{"tool": name, "arguments": {...}}`), or None.
        reset: the arguments of `reset` that start it, again and again.
        tools: schemas of the functions that the policy may call.
        env: the environment's name.
    """

    index: int
    prompt: tuple[Message, ...]
    row: Mapping[str, Any]
    demonstration: str | tuple[Action, ...] | None
    reset: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Schema, ...] = ()
    env: str = ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The demonstration as one action for each turn; none when there is no demonstration."""
        if not self.demonstration:
            return ()
        return (self.demonstration,) if isinstance(self.demonstration, str) else self.demonstration


def episodes_of(env: BoundEnv, split: str, *, limit: int | None, unbounded: int) -> list[Episode]:
    """Starts one episode per row.

    Args:
        env: the environment with its options.
        split: "train" or "test".
        limit: use only the first rows, or start so many episodes; None for all.
        unbounded: how many episodes to start when the environment has no rows and makes its own.

    Raises:
        DatasetError: the rows cannot be used, or there are none.
        PluginError: the environment breaks the contract.
    """
    rows = env.rows(split)
    instance = env.make()
    try:
        if rows is None:
            first = 0 if split == "train" else HELD_OUT_SEED
            count = unbounded if limit is None else limit
            found = [_start(env, instance, index, {"seed": first + index}, {}) for index in range(count)]
        else:
            chosen: Sequence[Mapping[str, Any]] = rows if limit is None else rows[:limit]
            if len(chosen) == 0:
                raise DatasetError(f"env '{env.name}': the split '{split}' has no rows.")
            starts = [({"seed": index, "options": {"row": row}}, row) for index, row in enumerate(chosen)]
            found = [_start(env, instance, index, how, row) for index, (how, row) in enumerate(starts)]
        tools = schemas_of(instance, env.name)  # an environment may first have them in an episode
        return [replace(episode, tools=tools) for episode in found] if tools else found
    finally:
        instance.close()


def completed(episode: Episode, text: str, sampled: Sampled) -> Completion:
    """Makes the `Completion` that rewards see of one sampled answer to an episode."""
    return Completion(
        text=text,
        messages=(Message(role="assistant", content=text),),
        prompt=episode.prompt,
        row=episode.row,
        token_ids=sampled.token_ids,
        logprobs=sampled.logprobs,
        finish_reason=sampled.finish_reason,
        env=episode.env,
    )


def _start(env: BoundEnv, instance: Any, index: int, how: dict[str, Any], row: Mapping[str, Any]) -> Episode:
    try:
        observation, info = instance.reset(**how)
    except DatasetError:
        raise
    except Exception as error:
        raise PluginError(
            f"env '{env.name}' ({env.distribution}) cannot start row {index}: {type(error).__name__}: {error}"
        ) from error
    demonstration = info.get("demonstration")
    if isinstance(demonstration, list):
        demonstration = tuple(demonstration)
    columns = dict(info.get("row", row))
    return Episode(index, prompt_of(observation, info), columns, demonstration, how, env=env.name)


def prompt_of(observation: Any, info: Mapping[str, Any]) -> tuple[Message, ...]:
    """Returns the chat messages to answer, from what `reset` returned."""
    return tuple(info.get("prompt") or (Message(role="user", content=str(observation)),))
