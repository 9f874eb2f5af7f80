"""Runs a check on a run until the check itself fails; then it warns once and stops checking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from grpo.core.text.printable import one_line

Finding = TypeVar("Finding")


class Watchdog:
    """Runs one check. `warned` is called once, with the step and a warning, when an error ends it."""

    def __init__(self, name: str, warned: Callable[[int, str], None]) -> None:
        self._name = name
        self._warned = warned
        self._ended = False

    def look(self, step: int, looks: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
        """Returns the findings of a step; nothing from the first error on."""
        if self._ended:
            return []
        try:
            return looks()
        except Exception as error:  # of texts and numbers that nobody thought of
            self._ended = True
            self._warned(
                step,
                f"{self._name} is off for the rest of this run: it failed in step {step} with {type(error).__name__}: "
                f"{one_line(str(error))}. The run itself continues. Please report this with the rollouts and metrics "
                "of the step.",
            )
            return []
