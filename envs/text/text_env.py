"""Defines the base of environments that take and return texts."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from grpo.envs.text.spaces import AnyText

_TAG = re.compile(r"<(action|answer)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)


class TextEnv(gymnasium.Env[str, str]):
    """An environment of texts; `_open` says whether an episode has begun and not ended."""

    def __init__(self) -> None:
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._open = False

    def _checked(self, action: Any) -> str:
        """Raises ResetNeeded where no episode is open; TypeError where the action is no text."""
        if not self._open:
            raise ResetNeeded("no episode is open: call reset() before step().")
        if not isinstance(action, str):
            raise TypeError(f"the action must be the completion's text, not {type(action).__name__}.")
        return action


def shortened(text: str, most: int) -> str:
    """Returns the beginning and the end of a text of more characters than `most`; of an error the end says most."""
    head = most // 2
    return text if len(text) <= most else f"{text[:head]}\n[...]\n{text[head - most :]}"


def stated_action(completion: str) -> str:
    """Returns what stands in the last `<action>` or `<answer>`, or else the whole completion."""
    tagged = _TAG.findall(completion)
    return (tagged[-1][1] if tagged else completion).strip()
