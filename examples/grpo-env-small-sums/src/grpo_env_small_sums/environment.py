"""The gymnasium environment: one sum to answer. It scores nothing itself; the run's rewards score the completion."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Text


class SumEnv(gymnasium.Env[str, str]):
    """Asks for one sum.

    Args:
        rows: the rows to pick from when `reset` is given none.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.observation_space = Text(256, min_length=0, charset=string.printable)
        self.action_space = Text(256, min_length=0, charset=string.printable)
        self._rows = rows
        self._open = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of `options["row"]`, or of a row picked with the seed."""
        super().reset(seed=seed)
        row = options["row"] if options and "row" in options else self._pick()
        self._open = True
        prompt = [{"role": "user", "content": f"{row['question']} Answer with the number alone."}]
        return row["question"], {"prompt": prompt, "row": dict(row), "demonstration": row["answer"]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes the answer and ends the episode, unscored.

        Raises:
            ResetNeeded: nothing was asked.
        """
        if not self._open:
            raise ResetNeeded("nothing was asked: call reset() before each step().")
        self._open = False
        return "", 0.0, True, False, {}

    def _pick(self) -> Mapping[str, Any]:
        return self._rows[int(self.np_random.integers(len(self._rows)))]
