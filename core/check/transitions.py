"""Compares what two instances of an environment return, without times: numbers in `info` named `..._seconds`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo.core.env.step import five_values, two_values

MEASURED = "_seconds"
_SHOWN = 60  # characters of a value
_STEP = ("observation", "reward", "terminated", "truncated")
_START = ("prompt", "row", "demonstration", "gold")

Transition = Mapping[str, str]
"""The parts of what `reset` or `step` returned: name to representation."""


def without_times(info: Any) -> Any:
    """Returns an info without its times; one that has none, or is no mapping, as it is."""
    if not isinstance(info, Mapping):
        return info
    timeless = {
        key: value
        for key, value in info.items()
        if not (str(key).endswith(MEASURED) and isinstance(value, int | float))
    }
    return info if len(timeless) == len(info) else timeless


def of_reset(started: Any) -> Transition:
    """Returns the parts of a start that an episode depends on. Raises ShapeError if it is not two values."""
    observation, info = two_values(started)
    return {"observation": repr(observation), **{_part(key): repr(info.get(key)) for key in _START}}


def of_step(stepped: Any) -> Transition:
    """Returns a step's observation, reward, whether the episode ended, and info. Raises ShapeError for others."""
    *results, info = five_values(stepped)
    parts = {name: repr(value) for name, value in zip(_STEP, results, strict=True)}
    return {**parts, **{_part(key): repr(value) for key, value in without_times(info).items()}}


def difference(first: Sequence[Transition], second: Sequence[Transition]) -> str:
    """Returns where two episodes part: the name of the first part that differs, and both values. "" if nowhere."""
    for one, other in zip(first, second, strict=False):
        for name in [*one, *(name for name in other if name not in one)]:
            if one.get(name) != other.get(name):
                return f"{name} is {_shown(one.get(name))} and then {_shown(other.get(name))}"
    return "" if len(first) == len(second) else f"{len(first) - 1} steps and then {len(second) - 1} end the episode"


def _part(key: Any) -> str:
    return f"info[{key!r}]"


def _shown(value: str | None) -> str:
    if value is None:
        return "missing"
    return value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
