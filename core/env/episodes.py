"""Turns an environment's rows into episodes: prompt, columns for rewards, and a worked answer if there is one.

Up to 4,096 rows, and all of a stepped environment, are started at once; of more as many, evenly, others on demand.
"""

from __future__ import annotations

import hashlib
import json
import time
from array import array
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain
from typing import Any, overload

from grpo.core.env.step import ShapeError, two_values
from grpo.core.env.threads import EnvCalls, EnvThreads, Raised
from grpo.core.env.tools import Schema, schemas_of
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, GrpoError, PluginError, UsageError, with_article
from grpo.plugins.types import Message, Row

Opened = Callable[[], EnvCalls]
Action = str | Mapping[str, Any]  # what the policy says, or a call of a tool
MOST_MADE = 1_000_000  # episodes of an environment that makes its own
UNBOUNDED = 200  # episodes to try of an environment that makes its own, unless the user says how many
STARTED = 4096  # episodes that are started before anything else, of an environment that has more rows
START_SECONDS = 60.0  # to start an episode, unless the user says how long
_MOMENT = 0.1  # seconds of starting episodes without a look at the clock of those that hang
_BLOCK = 256  # the most episodes that are started in one call
HELD_OUT_SEED = 2**20  # first seed of held-out episodes for environments that make their own


@dataclass(frozen=True, slots=True)
class Episode:
    """One start of an environment."""

    index: int  # position among the episodes of its split
    prompt: tuple[Message, ...]  # the chat messages to answer
    row: Mapping[str, Any]  # the columns that rewards and verifiers read
    # a worked answer in the environment's format, or for each turn one action or call of a tool (`{"tool": name,
    # "arguments": {...}}`), or None
    demonstration: str | tuple[Action, ...] | None
    reset: Mapping[str, Any] = field(default_factory=dict)  # the arguments of `reset` that start it, again and again
    tools: tuple[Schema, ...] = ()  # schemas of the functions that the policy may call
    env: str = ""  # the environment's name
    # where there is no worked answer, a right one that nobody is to learn from, in the same form, or None
    gold: str | tuple[Action, ...] | None = None
    place: str = ""  # where its row was written, or what it was made from, for messages
    group: int | None = None  # of an episode in a batch, the number of the group that its rollouts are; else None
    # the same number in this process for rows that ask the same, where the rows know it; else None
    asked: int | None = field(default=None, compare=False)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The demonstration as one action for each turn; none when there is no demonstration."""
        return _by_turn(self.demonstration)

    @property
    def gold_actions(self) -> tuple[Action, ...]:
        """The actions of the demonstration, or else of the gold answer; none when there is neither."""
        return self.actions or _by_turn(self.gold)


class _Some(Sequence[Episode]):
    def some(self, numbers: Sequence[int]) -> tuple[Episode, ...]:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Episode: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Episode, ...]: ...

    def __getitem__(self, index: int | slice) -> Episode | tuple[Episode, ...]:
        numbers = range(len(self))[index]
        return self.some(numbers) if isinstance(numbers, range) else self.some([numbers])[0]


class Episodes(_Some):
    """The episodes of many rows, each started on demand, in a place that `opened` returns.

    `sample`: episodes that were started at once: spread evenly, and one of each set of columns. `sizes`: about the
    characters of each prompt. `asked`: equal numbers in this process for rows that ask the same; None: unknown.
    """

    def __init__(self, env: BoundEnv, rows: _Rows, *, describe_tools: bool, opened: Opened) -> None:
        self._env = env
        self._rows = rows
        self._opened = opened
        self.sizes = rows.sizes()
        self.asked = rows.asked()
        even = {number * len(rows) // STARTED for number in range(STARTED)}
        self.sample, self._tools = _started(env, rows, sorted({*even, *rows.kinds()}), describe_tools, opened)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Episode]:
        for first in range(0, len(self), STARTED):
            yield from self[first : first + STARTED]

    def some(self, numbers: Sequence[int]) -> tuple[Episode, ...]:
        """Starts some episodes; raises what `episodes_of` raises."""
        started, _ = _started(self._env, self._rows, numbers, False, self._opened)
        return tuple(replace(episode, tools=self._tools) for episode in started) if self._tools else started

    def digest(self) -> str:
        return self._rows.digest()


class _Joined(_Some):
    def __init__(self, parts: Sequence[Sequence[Episode]]) -> None:
        self._parts = tuple(parts)
        self._ends = list(accumulate(map(len, parts), initial=0))

    def __len__(self) -> int:
        return self._ends[-1]

    def some(self, numbers: Sequence[int]) -> tuple[Episode, ...]:
        places = [(number, bisect(self._ends, number) - 1) for number in numbers]
        return tuple(self._parts[part][number - self._ends[part]] for number, part in places)


def joined(parts: Sequence[Sequence[Episode]]) -> Sequence[Episode]:
    """Returns the episodes of several environments, one environment's after the other's, without starting any."""
    return _Joined(parts) if any(isinstance(part, Episodes) for part in parts) else tuple(chain(*parts))


def sample_of(episodes: Sequence[Episode]) -> Sequence[Episode]:
    """Returns the episodes that have been started: all, or of many a part."""
    return episodes.sample if isinstance(episodes, Episodes) else episodes


def hash_of(parts: Iterable[Sequence[Episode]]) -> str:
    """Returns a hash of what the episodes of some environments are made from."""
    hasher = hashlib.sha256()
    for episodes in parts:
        if isinstance(episodes, Episodes):
            hasher.update(episodes.digest().encode())
        else:
            for episode in episodes:
                hasher.update(_as_json([episode.prompt, episode.row]))
    return hasher.hexdigest()


def _as_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()


def episodes_of(
    env: BoundEnv,
    split: str,
    *,
    limit: int | None,
    unbounded: int,
    describe_tools: bool = True,
    seconds: float = START_SECONDS,
    opened: Opened | None = None,
) -> Sequence[Episode]:
    """Starts one episode per row.

    `split`: "train" or "test". `limit`: only the first rows, or so many episodes; None for all. `unbounded`: how many
    to start without rows. `describe_tools`: for a policy; imports transformers. `seconds`: to start one episode; the
    first one makes the environment too. `opened`: returns a place to start them in; None: a thread of this process,
    which can be left when an environment hangs. Raises DatasetError for unusable or no rows; UsageError for more
    episodes than memory is meant to hold; PluginError if the environment breaks the contract, or an episode does not
    start in time.
    """
    opened = opened or partial(EnvThreads, env.make, seconds=seconds)
    rows = env.rows(split)
    if rows is None:
        return _started(env, _seeds(env, split, limit, unbounded), None, describe_tools, opened)[0]
    chosen: Sequence[Row] = rows if limit is None else rows[:limit]
    if len(chosen) == 0:
        raise DatasetError(f"env '{env.name}': the split '{split}' has no rows.")
    starts = _Rows(chosen, getattr(rows, "places", None))
    if len(chosen) > STARTED and not env.spec.played:
        return Episodes(env, starts, describe_tools=describe_tools, opened=opened)
    return _started(env, starts, None, describe_tools, opened)[0]


@dataclass(frozen=True, slots=True)
class _Seeds:
    seeds: range

    def __len__(self) -> int:
        return len(self.seeds)

    def start(self, number: int) -> tuple[dict[str, Any], Row, str]:
        return {"seed": self.seeds[number]}, {}, f"seed {self.seeds[number]}"

    def asked(self) -> None:
        """Returns None: only what an episode shows tells what it asks."""


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: Sequence[Row]
    places: Sequence[str] | None

    def __len__(self) -> int:
        return len(self.rows)

    def start(self, number: int) -> tuple[dict[str, Any], Row, str]:
        row = self.rows[number]
        place = f"row {number}" if self.places is None else self.places[number]
        return {"seed": number, "options": {"row": row}}, row, place

    def sizes(self) -> Sequence[int]:
        """Returns the characters of each row's prompt where the rows know them, or else of all texts of the row."""
        known: Sequence[int] | None = getattr(self.rows, "sizes", None)
        if known is not None:
            return known
        return array("q", (sum(len(value) for value in row.values() if isinstance(value, str)) for row in self.rows))

    def asked(self) -> Sequence[int] | None:
        return getattr(self.rows, "asked", None)

    def kinds(self) -> Sequence[int]:
        """Returns numbers of rows that between them have every set of columns, where the rows know them."""
        return getattr(self.rows, "kinds", ())

    def digest(self) -> str:
        own = getattr(self.rows, "digest", None)
        if own is not None:
            return str(own())
        hasher = hashlib.sha256()
        for row in self.rows:
            hasher.update(_as_json(row))
        return hasher.hexdigest()


def _seeds(env: BoundEnv, split: str, limit: int | None, unbounded: int) -> _Seeds:
    first = 0 if split == "train" else HELD_OUT_SEED
    count = unbounded if limit is None else limit
    if count > MOST_MADE:
        raise UsageError(
            f"env '{env.name}' makes its own episodes, and {count:,} of them would be started before all else; "
            f"{MOST_MADE:,} is the most. Say how many with --limit (they come again when a run has more steps), or "
            "lower --eval-size or --size."
        )
    return _Seeds(range(first, first + count))


def _started(
    env: BoundEnv, starts: _Seeds | _Rows, numbers: Sequence[int] | None, describe_tools: bool, opened: Opened
) -> tuple[tuple[Episode, ...], tuple[Schema, ...]]:
    wanted, asked = range(len(starts)) if numbers is None else numbers, starts.asked()
    started: list[Episode] = []
    tools: tuple[Schema, ...] = ()
    size, alone = 1, 0
    while len(started) < len(wanted):
        with opened() as envs:
            while len(started) < len(wanted):
                block = wanted[len(started) : len(started) + (1 if len(started) < alone else size)]
                answer = envs.call({0: partial(_start_some, env.name, [(n, *starts.start(n)) for n in block])})[0]
                if isinstance(answer, Raised):
                    if len(block) == 1:
                        raise _not_started(env, answer, starts.start(block[0])[2])
                    alone = len(started) + len(block)
                    break
                started += answer
                size = min(2 * len(answer), _BLOCK)
            else:
                if describe_tools and started:  # it may first have them in an episode
                    tools = envs.call({0: partial(schemas_of, name=env.name)})[0]
    if isinstance(tools, Raised):
        raise _not_started(env, tools, "its tools")
    if asked is not None:
        started = [replace(episode, asked=asked[number]) for episode, number in zip(started, wanted, strict=True)]
    return tuple(replace(episode, tools=tools) for episode in started) if tools else tuple(started), tools


def _start_some(name: str, starts: Sequence[tuple[int, dict[str, Any], Row, str]], instance: Any) -> list[Episode]:
    """Starts the first of some episodes, and others for a moment; a failure is the first one's."""
    started: list[Episode] = []
    until = time.monotonic() + _MOMENT
    for start in starts:
        try:
            started.append(start_episode(name, instance, *start))
        except BaseException:  # also an environment that exits
            if not started:
                raise
            break
        if time.monotonic() >= until:
            break
    return started


def _not_started(env: BoundEnv, raised: Raised, place: str) -> BaseException:
    error = raised.error
    if isinstance(error, GrpoError):
        return error
    reason = f"{type(error).__name__}: {error}"
    if type(error).__name__ == "TimeoutError":
        reason += ". In a run, rollout.step_timeout is the time that the start of an episode may take."
    elif raised.shared:
        reason = f"{error}. Fix what `reset` does there, or leave that row or seed out."
    return PluginError(f"env '{env.name}' ({env.distribution}) cannot start {place}: {reason}")


def in_groups(starts: Sequence[Episode], size: int, first: int = 0) -> list[Episode]:
    """Returns the episodes of a batch, `size` neighbours to a group, with the numbers of their groups."""
    return [replace(episode, group=number // size) for number, episode in enumerate(starts, first)]


def start_episode(
    name: str, instance: Any, index: int, how: dict[str, Any], row: Mapping[str, Any], place: str
) -> Episode:
    """Starts one episode and returns what it shows; `place`: where its row was written."""
    observation, info = two_values(instance.reset(**deepcopy(how)))  # it may write into the row
    return Episode(
        index,
        prompt_of(observation, info),
        dict(info.get("row", row)),
        _frozen(info.get("demonstration")),
        how,
        env=name,
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
    """Returns the chat messages to answer, from what `reset` returned. Raises ShapeError if one is not text."""
    messages = tuple(info.get("prompt") or (Message(role="user", content=str(observation)),))
    for number, message in enumerate(messages, 1):
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            kind = with_article(type(content).__name__)
            raise ShapeError(f"message {number} of the prompt has {kind} as its content; the policy reads text alone")
    return messages
