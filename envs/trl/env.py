"""An environment in TRL's manner as one of gymnasium's: an instance with `reset`, tools and `get_reward` in.

The policy calls the public methods as tools; its first turn without a call ends the episode, and the environment is
asked for its reward. `reset` gets the columns of the row, and may return text that is added to the last message.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from grpo.envs.own_numbers import SEEDS, OwnNumbers
from grpo.envs.text.spaces import AnyText

_NO_TOOLS = ("reset", "get_reward")


class ToolEnv(gymnasium.Env[str, str]):
    """Plays an environment of TRL's kind.

    Args:
        factory: makes the inner environment; called once.
        read_rows: returns rows to pick from when `reset` is given none.

    Attributes:
        tools: its public methods.
    """

    def __init__(self, factory: Callable[[], Any], read_rows: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._inner = factory()
        self._read_rows = read_rows
        self._numbers = OwnNumbers()
        self._open = False
        members = inspect.getmembers(type(self._inner), predicate=inspect.isfunction)
        names = [name for name, _ in members if not name.startswith("_") and name not in _NO_TOOLS]
        self.tools = [getattr(self._inner, name) for name in names]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of a row.

        Args:
            seed: seeds what the environment draws from Python's and NumPy's global random numbers, which TRL does not.
            options: `{"row": row}` names the row.
        """
        super().reset(seed=seed)
        given = (options or {}).get("row")
        rows = [given] if given is not None else self._read_rows()
        row = dict(rows[int(self.np_random.integers(len(rows)))])
        asked = row.get("prompt") or ""
        start = row.pop("episode", None)  # of a row that no dataset holds
        if start is None:
            start = seed if seed is not None else int(self.np_random.integers(SEEDS))
        else:
            row = self._taken(row)
        with self._numbers.used(start):
            told = self._inner.reset(**row)
        if told is not None and not isinstance(told, str):
            raise TypeError(f"reset returned a {type(told).__name__}; only text is supported here.")
        prompt = [{"role": "user", "content": asked}] if isinstance(asked, str) else [dict(one) for one in asked]
        prompt[-1]["content"] += told or ""
        self._open = True
        columns = {name: value for name, value in row.items() if name != "prompt"}
        return prompt[-1]["content"], {"prompt": prompt, "row": columns}

    def _taken(self, row: dict[str, Any]) -> dict[str, Any]:
        """What `reset` takes of a row that no dataset holds."""
        parameters = inspect.signature(self._inner.reset).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        names = {parameter.name for parameter in parameters}
        return {name: value for name, value in row.items() if takes_all or name in names}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes the answer, which ends the episode.

        Raises:
            ResetNeeded: no episode is open.
            TypeError: the action is not text.
        """
        if not self._open:
            raise ResetNeeded("no episode is open: call reset() before step().")
        if not isinstance(action, str):
            raise TypeError(f"the action must be the completion's text, not {type(action).__name__}.")
        self._open = False
        reward = 0.0
        if callable(getattr(self._inner, "get_reward", None)):
            found = self._inner.get_reward()
            reward = float(asyncio.run(found) if inspect.iscoroutine(found) else found)
        return "", reward, True, False, {"scores": {"reward": reward}}
