"""Turns an environment's rows into episodes: what to ask, what rewards may read, and a worked answer if there is one.

In: a bound environment and a split. Out: one frozen `Episode` per row, in the rows' order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grpo.core.tools import Schema, schemas_of
from grpo.plugins.binding import BoundEnv
from grpo.plugins.errors import DatasetError, PluginError
from grpo.plugins.placed_rows import PlacedRows
from grpo.plugins.types import Completion, Message

if TYPE_CHECKING:
    from grpo.core.rollout import Sampled

Action = str | Mapping[str, Any]  # what the policy says, or a call of a tool
UNBOUNDED = 200  # episodes to try of an environment that makes its own, unless the user says how many
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
        gold: where there is no worked answer, a right one that nobody is to learn from, in the same form, or None.
        reset: the arguments of `reset` that start it, again and again.
        tools: schemas of the functions that the policy may call.
        env: the environment's name.
        place: where its row was written, or what it was made from, for messages.
    """

    index: int
    prompt: tuple[Message, ...]
    row: Mapping[str, Any]
    demonstration: str | tuple[Action, ...] | None
    reset: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Schema, ...] = ()
    env: str = ""
    gold: str | tuple[Action, ...] | None = None
    place: str = ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The demonstration as one action for each turn; none when there is no demonstration."""
        return _by_turn(self.demonstration)

    @property
    def gold_actions(self) -> tuple[Action, ...]:
        """The actions of the demonstration, or else of the gold answer; none when there is neither."""
        return self.actions or _by_turn(self.gold)


def episodes_of(
    env: BoundEnv, split: str, *, limit: int | None, unbounded: int, describe_tools: bool = True
) -> list[Episode]:
    """Starts one episode per row.

    Args:
        env: the environment with its options.
        split: "train" or "test".
        limit: use only the first rows, or start so many episodes; None for all.
        unbounded: how many episodes to start when the environment has no rows and makes its own.
        describe_tools: for a policy; that imports transformers.

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
            seeds = range(first, first + count)
            found = [
                start_episode(env, instance, n, {"seed": seed}, {}, f"seed {seed}") for n, seed in enumerate(seeds)
            ]
        else:
            chosen: Sequence[Mapping[str, Any]] = rows if limit is None else rows[:limit]
            if len(chosen) == 0:
                raise DatasetError(f"env '{env.name}': the split '{split}' has no rows.")
            places = rows.places if isinstance(rows, PlacedRows) else [f"row {index}" for index in range(len(rows))]
            starts = [({"seed": index, "options": {"row": row}}, row) for index, row in enumerate(chosen)]
            found = [start_episode(env, instance, n, *start, places[n]) for n, start in enumerate(starts)]
        if not describe_tools:
            return found
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


def start_episode(
    env: BoundEnv, instance: Any, index: int, how: dict[str, Any], row: Mapping[str, Any], place: str
) -> Episode:
    """Starts one episode and returns what it shows.

    Args:
        env: the environment with its options.
        instance: what it made.
        index: the episode's number among those of its split.
        how: the arguments of `reset`.
        row: the row among them, or an empty one.
        place: where the row was written, or what the episode is made from.

    Raises:
        DatasetError: the row cannot be used.
        PluginError: the environment breaks the contract.
    """
    try:
        observation, info = instance.reset(**deepcopy(how))  # it may write into the row
    except DatasetError:
        raise
    except Exception as error:
        raise PluginError(
            f"env '{env.name}' ({env.distribution}) cannot start {f'row {index}' if row else place}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return Episode(
        index,
        prompt_of(observation, info),
        dict(info.get("row", row)),
        _frozen(info.get("demonstration")),
        how,
        env=env.name,
        gold=_frozen(info.get("gold")),
        place=place,
    )


def _frozen(worked: Any) -> Any:
    return tuple(worked) if isinstance(worked, list) else worked


def _by_turn(worked: str | tuple[Action, ...] | None) -> tuple[Action, ...]:
    if not worked:
        return ()
    return (worked,) if isinstance(worked, str) else worked


def prompt_of(observation: Any, info: Mapping[str, Any]) -> tuple[Message, ...]:
    """Returns the chat messages to answer, from what `reset` returned."""
    return tuple(info.get("prompt") or (Message(role="user", content=str(observation)),))
