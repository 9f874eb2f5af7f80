"""Turns an environment's rows into episodes: what to ask, what rewards may read, and a worked answer if there is one.

In: a bound environment and a split. Out: one frozen `Episode` per row, in the rows' order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grpo.core.env.threads import EnvThreads, Raised
from grpo.core.env.tools import Schema, schemas_of
from grpo.plugins._binding import BoundEnv
from grpo.plugins.errors import DatasetError, GrpoError, PluginError, UsageError
from grpo.plugins.placed_rows import PlacedRows
from grpo.plugins.types import Message

if TYPE_CHECKING:
    pass

Action = str | Mapping[str, Any]  # what the policy says, or a call of a tool
MOST_MADE = 1_000_000  # episodes of an environment that makes its own
UNBOUNDED = 200  # episodes to try of an environment that makes its own, unless the user says how many
START_SECONDS = 60.0  # to start an episode, unless the user says how long
_TURN = 0.1  # seconds of starting episodes without a look at the clock of those that hang
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
        group: of an episode in a batch, the number of the group that its rollouts are; else None.
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
    group: int | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """The demonstration as one action for each turn; none when there is no demonstration."""
        return _by_turn(self.demonstration)

    @property
    def gold_actions(self) -> tuple[Action, ...]:
        """The actions of the demonstration, or else of the gold answer; none when there is neither."""
        return self.actions or _by_turn(self.gold)


def episodes_of(
    env: BoundEnv,
    split: str,
    *,
    limit: int | None,
    unbounded: int,
    describe_tools: bool = True,
    seconds: float = START_SECONDS,
) -> list[Episode]:
    """Starts one episode per row, in a thread that can be left when an environment hangs.

    Args:
        env: the environment with its options.
        split: "train" or "test".
        limit: use only the first rows, or start so many episodes; None for all.
        unbounded: how many episodes to start when the environment has no rows and makes its own.
        describe_tools: for a policy; that imports transformers.
        seconds: to start one episode; the first one makes the environment too.

    Raises:
        DatasetError: the rows cannot be used, or there are none.
        UsageError: more episodes than memory is meant to hold.
        PluginError: the environment breaks the contract, or an episode does not start in time.
    """
    starts = _starts(env, split, limit, unbounded)
    found: list[Episode] = []

    def start_some(instance: Any) -> Any:
        until = time.monotonic() + min(_TURN, seconds / 2)
        while len(found) < len(starts) and time.monotonic() < until:
            found.append(start_episode(env, instance, len(found), *starts[len(found)]))
        return instance

    with EnvThreads(env.make, seconds=seconds) as threads:
        while len(found) < len(starts):
            instance = threads.call({0: start_some})[0]
            if isinstance(instance, Raised):
                raise _not_started(env, instance.error, starts[len(found)][2])
        if not (describe_tools and found):
            return found
        tools = schemas_of(instance, env.name)  # it may first have them in an episode
    return [replace(episode, tools=tools) for episode in found] if tools else found


def _starts(
    env: BoundEnv, split: str, limit: int | None, unbounded: int
) -> list[tuple[dict[str, Any], Mapping[str, Any], str]]:
    """Returns the arguments of `reset` for each episode, its row (or an empty one) and its place."""
    rows = env.rows(split)
    if rows is None:
        first = 0 if split == "train" else HELD_OUT_SEED
        count = unbounded if limit is None else limit
        if count > MOST_MADE:
            raise UsageError(
                f"env '{env.name}' makes its own episodes, and {count:,} of them would be started before all else; "
                f"{MOST_MADE:,} is the most. Say how many with --limit (they come again when a run has more steps), or "
                "lower --eval-size or --size."
            )
        seeds = range(first, first + count)
        return [({"seed": seed}, {}, f"seed {seed}") for seed in seeds]
    chosen: Sequence[Mapping[str, Any]] = rows if limit is None else rows[:limit]
    if len(chosen) == 0:
        raise DatasetError(f"env '{env.name}': the split '{split}' has no rows.")
    places = rows.places if isinstance(rows, PlacedRows) else [f"row {index}" for index in range(len(chosen))]
    return [({"seed": n, "options": {"row": row}}, row, places[n]) for n, row in enumerate(chosen)]


def _not_started(env: BoundEnv, error: BaseException, place: str) -> BaseException:
    """Returns the error of an environment that did not start an episode."""
    if isinstance(error, GrpoError):
        return error
    told = f"{type(error).__name__}: {error}"
    if isinstance(error, TimeoutError):
        told += ". In a run, rollout.step_timeout is the time that the start of an episode may take."
    return PluginError(f"env '{env.name}' ({env.distribution}) cannot start {place}: {told}")


def in_groups(starts: Sequence[Episode], size: int, first: int = 0) -> list[Episode]:
    """Returns the episodes of a batch, of which so many neighbours are one group, with the numbers of their groups.

    Args:
        starts: one for each rollout.
        size: members of a group.
        first: how many stand before these in the batch, on other processes.
    """
    return [replace(episode, group=number // size) for number, episode in enumerate(starts, first)]


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
        Exception: whatever the environment raises.
    """
    observation, info = instance.reset(**deepcopy(how))  # it may write into the row
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
