"""Keeps environments that started together in one place, whose threads or process go with its last rollout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Self

from grpo.core.env.env_batch import EnvBatch
from grpo.core.env.episodes import Episode
from grpo.core.env.threads import Call
from grpo.core.env.tools import ToolCall


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
        """Makes one call for each environment, in all places at once."""
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
