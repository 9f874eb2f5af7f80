"""Reads actions of gymnasium environments from text.

The last `<action>` (or `<answer>`) decides, without one the last line that is not blank. A discrete action is its
number or its word; a line with several different ones holds none. Other spaces take JSON: a number or a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy

from grpo.envs.gym.text import shortened

_READ = 20_000  # characters of a completion, from its end
_MOST_WORDS = 200
_MOST_SPACE = 400  # characters
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_TAG = re.compile(r"<(action|answer)>", re.IGNORECASE)
_WORD = re.compile(r"-?[^\W_]+(?:[-_][^\W_]+)*")


def can_be_written(space: gymnasium.Space[Any]) -> bool:
    """Tells whether `read_action` knows the space."""
    spaces = gymnasium.spaces
    return isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Text)


def described_actions(space: gymnasium.Space[Any], names: Sequence[str]) -> str:
    if isinstance(space, gymnasium.spaces.Discrete):
        first, count = int(space.start), int(space.n)
        if not names and count > _MOST_WORDS:
            return f"Actions: the whole numbers from {first} to {first + count - 1}."
        return shortened(f"Actions: {', '.join(names or map(str, range(first, first + count)))}.")
    if isinstance(space, gymnasium.spaces.Text):
        return "An action is a text."
    return f"An action is a JSON list of numbers in the space {shortened(str(space), _MOST_SPACE)}."


def read_action(completion: str, space: gymnasium.Space[Any], names: Sequence[str]) -> Any:
    """Returns the action that a completion names, or None."""
    stated = _stated(completion[-_READ:])
    if isinstance(space, gymnasium.spaces.Discrete):
        return _discrete(stated, space, names)
    if isinstance(space, gymnasium.spaces.Text):
        return stated if space.contains(stated) else None
    try:
        action = numpy.asarray(json.loads(stated), dtype=space.dtype).reshape(space.shape or ())
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return action if space.contains(action) else None


def _stated(text: str) -> str:
    tags = list(_TAG.finditer(text))
    if tags:
        inside = text[tags[-1].end() :]
        return re.split(rf"</{tags[-1][1]}\s*>", inside, maxsplit=1, flags=re.IGNORECASE)[0].strip()
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")


def _discrete(stated: str, space: gymnasium.spaces.Discrete, names: Sequence[str]) -> int | None:
    first = int(space.start)
    words = {name.casefold(): first + number for number, name in enumerate(names)}

    def known(word: str) -> int | None:
        if word in words or not _NUMBER.fullmatch(word):
            return words.get(word)
        number = int(word)
        return number if 0 <= number - first < int(space.n) else None

    whole = known(stated.strip(" .!\"'`*()[]").casefold())
    if whole is not None:
        return whole
    actions = {known(match.casefold()) for match in _WORD.findall(stated)} - {None}
    return actions.pop() if len(actions) == 1 else None
