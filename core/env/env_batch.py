"""Steps the environments of a batch, and calls their tools, in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any, Literal, Protocol, Self

from grpo.core.env.episodes import Episode, prompt_of
from grpo.core.env.step import two_values
from grpo.core.env.threads import Call, EnvCalls, EnvThreads, Raised
from grpo.core.env.tools import ToolCall, answer, functions_of

_OTHERWISE = ", as the order of a set or hash() does in another process"
Functions = Mapping[str, Callable[..., Any]]


class EnvBatch(EnvCalls, Protocol):
    """Environments by the number of their rollout, wherever they are; a number that failed must not be called again."""

    def start(self, episodes: Mapping[int, Episode]) -> dict[int, Any]:
        """Makes environments and starts their episodes; returns for each whether it offers tools, or a `Raised`."""

    def use(self, calls: Mapping[int, ToolCall]) -> dict[int, Any]:
        """Makes one call of a tool for each; returns the policy's observation, or a `Raised`."""

    def release(self, number: int) -> None:
        """Has an environment closed."""


class LocalEnvBatch:
    """Environments in threads of this process; use it as a context manager. `seconds`: the time limit of one call."""

    def __init__(self, make: Callable[[], Any], *, seconds: float) -> None:
        self._envs = EnvThreads(make, seconds=seconds)
        self._tools = EnvThreads(lambda: None, seconds=seconds)
        self._functions: dict[int, Functions] = {}

    def __enter__(self) -> Self:
        self._envs.__enter__()
        self._tools.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._tools.__exit__(*exception)
        self._envs.__exit__(*exception)

    def start(self, episodes: Mapping[int, Episode]) -> dict[int, Any]:
        answers = self._envs.call({number: partial(_start, episode) for number, episode in episodes.items()})
        self._functions |= {number: answer for number, answer in answers.items() if not isinstance(answer, Raised)}
        return {number: answer if isinstance(answer, Raised) else bool(answer) for number, answer in answers.items()}

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        return self._envs.call(calls)

    def use(self, calls: Mapping[int, ToolCall]) -> dict[int, Any]:
        return self._tools.call({n: partial(_use, self._functions[n], call) for n, call in calls.items()})

    def release(self, number: int) -> None:
        self._envs.release(number)
        self._tools.release(number)


def _use(functions: Functions, call: ToolCall, _: None) -> str:
    return answer(functions, call)


def _start(episode: Episode, env: Any) -> Functions:
    # A copy, since members of a group have one row, and an environment may write into what it is given.
    observation, info = two_values(env.reset(**deepcopy(dict(episode.reset))))
    if prompt_of(observation, info) != episode.prompt:
        raise ValueError(f"reset with the same seed and options gave another prompt than before{_OTHERWISE}")
    row, given = dict(info.get("row", episode.row)), dict(episode.row)
    if repr(row) != repr(given) and not row == given:
        raise ValueError(f"reset with the same seed and options gave another row than before{_OTHERWISE}")
    return functions_of(env)


class EnvShards:
    """Environments by the number of their rollout, see `EnvBatch`; a number is never used again."""

    def __init__(self, opened: Callable[[], EnvBatch]) -> None:
        self._opened = opened
        self._place_of: dict[int, EnvBatch] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        places = {id(place): place for place in self._place_of.values()}
        self._place_of.clear()
        for place in places.values():
            place.__exit__(*exception)

    def start(self, episodes: Mapping[int, Episode]) -> dict[int, Any]:
        """Makes environments and starts their episodes, in a place of their own."""
        if not episodes:
            return {}
        place = self._opened().__enter__()
        self._place_of |= dict.fromkeys(episodes, place)
        return place.start(episodes)

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        return self._asked("call", calls)

    def use(self, calls: Mapping[int, ToolCall]) -> dict[int, Any]:
        return self._asked("use", calls)

    def release(self, number: int) -> None:
        """Has an environment closed, and its place with the last one."""
        place = self._place_of.pop(number)
        place.release(number)
        if not any(other is place for other in self._place_of.values()):
            place.__exit__(None, None, None)

    def _asked(self, verb: Literal["call", "use"], calls: Mapping[int, Any]) -> dict[int, Any]:
        shares: dict[int, dict[int, Any]] = {}
        for number, call in calls.items():
            shares.setdefault(id(self._place_of[number]), {})[number] = call
        parts = [(self._place_of[next(iter(share))], share) for share in shares.values()]
        if len(parts) < 2:
            answers = [getattr(place, verb)(share) for place, share in parts]
        else:
            with ThreadPoolExecutor(len(parts), "grpo-cohort") as threads:
                answers = list(threads.map(lambda part: getattr(part[0], verb)(part[1]), parts))
        results = {number: result for answer in answers for number, result in answer.items()}
        return {number: results[number] for number in calls}
