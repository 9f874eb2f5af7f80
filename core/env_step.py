"""One step of an environment: an action as text in, what gymnasium's contract says came of it out, checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """What a step returned.

    Attributes:
        observation: the next message to the policy.
        reward: of the turn; finite.
        terminated, truncated: whether the episode is over.
        info: the entries that JSON can hold; only those are recorded and reach rewards.
    """

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated

    @property
    def told(self) -> dict[str, Any]:
        """What rewards see of the step if it is the last of a rollout."""
        return {**self.info, "terminated": self.terminated, "truncated": self.truncated}


def take_step(action: str, env: Any) -> StepAnswer:
    """Makes one step and checks what it returns.

    Raises:
        TypeError, ValueError: it is not what gymnasium's contract says, or no tokenizer reads it.
        Exception: whatever the environment raises.
    """
    observation, reward, terminated, truncated, info = env.step(action)
    if not isinstance(observation, str):
        raise TypeError(f"the observation is a {type(observation).__name__}, not text")
    observation.encode()  # a lone surrogate is a UnicodeEncodeError here, and would stop the run in the tokenizer
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"the reward is {number}")
    return StepAnswer(observation, number, bool(terminated), bool(truncated), _plain(info))


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in info.items() if _is_json(value)}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
