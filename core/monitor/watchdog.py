"""Lets a watch look at a run until an error of its own ends it: looks in, what they found or one warning out.

A run is worth more than a watch over it, so such an error does not end the run. Nor does it end the watch in silence,
which would read as if there were nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from grpo.core.text.printable import one_line

Found = TypeVar("Found")


class Watchdog:
    """One watch.

    Args:
        name: of the watch, in words.
        told: of the error that ended it, once: the step, and a warning.
    """

    def __init__(self, name: str, told: Callable[[int, str], None]) -> None:
        self._name = name
        self._told = told
        self._ended = False

    def look(self, step: int, looks: Callable[[], Sequence[Found]]) -> Sequence[Found]:
        """Returns what a look at a step finds; nothing from the first error on."""
        if self._ended:
            return []
        try:
            return looks()
        except Exception as error:  # of texts and numbers that nobody thought of
            self._ended = True
            self._told(
                step,
                f"{self._name} has ended for this run: it failed in step {step}, {type(error).__name__}: "
                f"{one_line(str(error))}. Later steps are not looked at; the run itself is not touched by it. Please "
                "report this with the rollouts and metrics of the step.",
            )
            return []
