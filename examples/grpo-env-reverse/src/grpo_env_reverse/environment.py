"""The gymnasium environment: one word to reverse, one answer.

In: rows with a column `word`. Out: the question as the observation; the chat prompt, the row and a worked answer in
`info`. It scores nothing itself: `step` returns 0.0 and the run's rewards score the completion.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Text


class ReverseEnv(gymnasium.Env[str, str]):
    """Asks for one word backwards.

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
        question = f"Write the word '{row['word']}' backwards. Answer with the word alone."
        self._open = True
        info = {
            "prompt": [{"role": "user", "content": question}],
            "row": dict(row),
            "demonstration": row["word"][::-1],
        }
        return question, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes the answer and ends the episode, unscored.

        Raises:
            ResetNeeded: no word was asked for.
        """
        if not self._open:
            raise ResetNeeded("no word was asked for: call reset() before each step().")
        self._open = False
        return "", 0.0, True, False, {}

    def _pick(self) -> Mapping[str, Any]:
        return self._rows[int(self.np_random.integers(len(self._rows)))]
