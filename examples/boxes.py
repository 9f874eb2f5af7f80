"""An environment of your own: a gymnasium class with a tool, in a file.

grpo plugins check env:examples/boxes.py:boxes
grpo run --env examples/boxes.py:boxes --warmup-steps 600 --set train.warmup_lr=2e-3 --advantage return_to_go

There are two boxes with a number in each, to be named one after the other. Whoever looks into a box first, which is a
tool, knows its number; each right one pays a half in its own turn. Half of the demonstrations look, and half
are lucky.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from grpo import AnyText, env

BOXES = 2
HIGHEST = 9
QUESTION = "A box. How many?"


class Boxes(gymnasium.Env[str, str]):
    """Boxes with a number in each."""

    def __init__(self) -> None:
        self.observation_space = self.action_space = AnyText()
        self._numbers: list[int] = []
        self._right = 0

    @property
    def tools(self) -> list[Any]:
        """What the policy may call; the docstring tells it what for."""
        return [self.look]

    def look(self) -> str:
        """Look into the box."""
        return str(self._numbers[0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Fills the boxes; the seed decides everything."""
        super().reset(seed=seed)
        self._numbers = [int(number) for number in self.np_random.integers(1, HIGHEST + 1, BOXES)]
        self._right = 0
        shown: list[Any] = []
        for number in self._numbers:
            look = [{"tool": "look", "arguments": {}}] if self.np_random.random() < 0.5 else []
            shown += [*look, str(number)]
        return QUESTION, {"demonstration": shown}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes the number of the next box."""
        right = action.strip() == str(self._numbers.pop(0))
        self._right += right
        ended = not self._numbers
        return "" if ended else QUESTION, right / BOXES, ended, False, {"success": self._right == BOXES}


@env(version=1, rewards=("environment",), verifier="environment", max_turns=2 * BOXES)
def boxes() -> Boxes:
    """Name the numbers in two boxes, with a look into each or without."""
    return Boxes()
