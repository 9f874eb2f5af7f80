"""Plays a class that was written for TRL's `environment_factory` as an environment of gymnasium."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo.envs.own_numbers import SEEDS, OwnNumbers
from grpo.envs.text.text_env import TextEnv
from grpo.plugins.errors import OptionError, with_article

_NO_TOOLS = ("reset", "get_reward")


class ToolEnv(TextEnv):
    """Plays an environment of TRL's kind.

    `factory`: makes the inner environment; called once. `read_rows`: the rows to pick from when `reset` is given none.
    `made`: there is no dataset, and the column `episode` seeds an episode. Raises OptionError: the class cannot be
    made, or a method cannot be described to the policy.
    """

    def __init__(
        self, name: str, factory: Callable[[], Any], read_rows: Callable[[], Sequence[Mapping[str, Any]]], *, made: bool
    ) -> None:
        super().__init__()
        self._name = name
        self._made = made
        try:
            self._inner = factory()
        except Exception as error:
            raise OptionError(
                f"{name} cannot be made: {type(error).__name__}: {error}. It is called without arguments, as TRL calls "
                "an environment_factory: give its parameters defaults, or name a function that returns an instance."
            ) from error
        self._read_rows = read_rows
        self._numbers = OwnNumbers()
        members = inspect.getmembers(type(self._inner), predicate=inspect.isfunction)
        names = [name for name, _ in members if not name.startswith("_") and name not in _NO_TOOLS]
        self.tools = [getattr(self._inner, name) for name in names]
        for tool in self.tools:
            self._refuse_undescribed(tool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of a row, with a seed for what the environment draws from global random numbers."""
        super().reset(seed=seed)
        given = (options or {}).get("row")
        rows = [given] if given is not None else self._read_rows()
        row = dict(rows[int(self.np_random.integers(len(rows)))])
        asked = row.get("prompt") or ""
        if self._made:
            start = row.pop("episode")
            row = self._taken(row)
        else:
            start = seed if seed is not None else int(self.np_random.integers(SEEDS))
        with self._numbers.used(start):
            observation = self._inner.reset(**row)
        if observation is not None and not isinstance(observation, str):
            raise OptionError(
                f"{self._name}: reset returned {with_article(type(observation).__name__)}, and the policy reads text "
                "only. Return a text, or None to add nothing to the prompt."
            )
        prompt = (
            [{"role": "user", "content": asked}] if isinstance(asked, str) else [dict(message) for message in asked]
        )
        prompt[-1]["content"] += observation or ""
        self._open = True
        columns = {name: value for name, value in row.items() if name != "prompt"}
        return prompt[-1]["content"], {"prompt": prompt, "row": columns}

    def _taken(self, row: dict[str, Any]) -> dict[str, Any]:
        """What `reset` takes of a row that no dataset holds."""
        parameters = inspect.signature(self._inner.reset).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        names = {parameter.name for parameter in parameters}
        return {name: value for name, value in row.items() if takes_all or name in names}

    def _refuse_undescribed(self, tool: Callable[..., Any]) -> None:
        text = inspect.getdoc(tool) or ""
        untold = [
            parameter.name
            for parameter in inspect.signature(tool).parameters.values()
            if parameter.annotation is parameter.empty or parameter.name not in text
        ]
        if untold or not text:
            lacks = f"the parameter '{untold[0]}' has no type or no description" if untold else "it has no docstring"
            raise OptionError(
                f"{self._name}: its method '{tool.__name__}' is a tool of the policy, and {lacks}. Annotate every "
                "parameter and describe each in a docstring with a section 'Args:', or begin the name with '_'."
            )

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._checked(action)
        self._open = False
        if not callable(getattr(self._inner, "get_reward", None)):
            return "", 0.0, True, False, {"scores": {"reward": 0.0}}
        reward = self._inner.get_reward()
        reward = asyncio.run(reward) if inspect.iscoroutine(reward) else reward
        if reward is None:  # as of a reward function of TRL: it does not apply
            return "", 0.0, True, False, {"abstains": True}
        return "", float(reward), True, False, {"scores": {"reward": float(reward)}}
