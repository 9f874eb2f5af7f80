"""Takes one step of an environment and checks the result against gymnasium's contract."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.core.env.tools import ToolCall, used
from grpo.plugins.errors import with_article


@dataclass(frozen=True, slots=True)
class StepAnswer:
    observation: str  # the next message to the policy
    reward: float  # of the turn; finite
    # terminated, truncated: whether the episode is over
    terminated: bool
    truncated: bool
    # the entries that JSON can hold, numbers of numpy as Python's own; only those are recorded and reach rewards
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    @property
    def final_info(self) -> dict[str, Any]:
        """What rewards get as `info` if the step is the last of a rollout."""
        return {**self.info, "terminated": self.terminated, "truncated": self.truncated}


def take_step(action: str, env: Any) -> StepAnswer:
    """Makes one step and checks it by gymnasium's contract: TypeError or ValueError, or what the env raises."""
    return _checked(env.step(action))


def tell_of_calls(text: str, calls: Sequence[ToolCall], answers: Sequence[str], env: Any) -> StepAnswer | None:
    """Tells an environment of a turn that called its tools; returns its last step if the episode has ended."""
    return take_step("", env) if used(env, text, calls, answers) else None


def cut_off(calling: bool, env: Any) -> StepAnswer | None:
    """Asks an environment for the outcome of a rollout that a budget ended; None where nothing is left to ask."""
    end = getattr(getattr(env, "unwrapped", env), "cut", None)
    if callable(end):
        return _checked(end())
    return take_step("", env) if calling else None


def weaknesses_of(env: Any) -> Callable[[Mapping[str, Any]], Iterable[str]] | None:
    """Returns what yields sentences on what a row's task pays for beside its solution; None if unknown."""
    weaknesses = getattr(getattr(env, "unwrapped", env), "weaknesses", None)
    return weaknesses if callable(weaknesses) else None


class ShapeError(TypeError):
    """What `reset` or `step` returned is not what the contract says."""


def two_values(answer: Any) -> tuple[Any, Mapping[str, Any]]:
    """Returns what `reset` returned. Raises ShapeError if it is not an observation and a mapping."""
    observation, info = _values("reset", answer, "observation", "info")
    return observation, info


def five_values(answer: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """Returns what `step` returned. Raises ShapeError if it is not five values, the last of them a mapping."""
    observation, reward, terminated, truncated, info = _values(
        "step", answer, "observation", "reward", "terminated", "truncated", "info"
    )
    return observation, reward, terminated, truncated, info


def _values(method: str, answer: Any, *names: str) -> tuple[Any, ...]:
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns when it is freed
        raise ShapeError(f"{method} is async; it must be a plain function")
    if not isinstance(answer, tuple) or len(answer) != len(names):
        given = f"{len(answer)} values" if isinstance(answer, tuple) else with_article(type(answer).__name__)
        raise ShapeError(f"{method} returned {given}, not {', '.join(names[:-1])} and {names[-1]}")
    if not isinstance(answer[-1], Mapping):
        raise ShapeError(f"the info that {method} returned is {with_article(type(answer[-1]).__name__)}, not a dict")
    return answer


def _checked(answer: Any) -> StepAnswer:
    observation, reward, terminated, truncated, info = five_values(answer)
    if not isinstance(observation, str):
        raise TypeError(f"the observation is {with_article(type(observation).__name__)}, not text")
    observation.encode()  # a lone surrogate is a UnicodeEncodeError here, and would stop the run in the tokenizer
    if isinstance(reward, str):
        raise TypeError(f"the reward is the text {reward[:60]!r}, not a number")
    try:
        number = float(reward)
    except (TypeError, ValueError):
        kind = "None" if reward is None else with_article(type(reward).__name__)
        raise TypeError(f"the reward is {kind}, not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"the reward is {number}")
    return StepAnswer(observation, number, bool(terminated), bool(truncated), _plain(info))


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in info.items():
        try:
            plain[str(key)] = _held_by_json(value)
        except (TypeError, ValueError, RecursionError):
            continue
    return plain


def _held_by_json(value: Any) -> Any:
    """Returns a value as JSON holds it, numbers of numpy or torch as Python's own; raises where it cannot."""
    try:
        json.dumps(value, allow_nan=False)
    except TypeError:
        return json.loads(json.dumps(value, allow_nan=False, default=_number))
    return value


def _number(value: Any) -> Any:
    if getattr(value, "shape", None) != ():
        raise TypeError(f"{with_article(type(value).__name__)} is not a number")
    return value.item()
