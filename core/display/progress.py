"""Declares what a run reports while it goes on; the terminal display, the notebook and tests implement it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo.core.plan import Plan
from grpo.core.text.stats import Estimate
from grpo.core.timing.forecast import Forecast
from grpo.plugins.types import Completion


class Progress:
    """The events of a run, in the order in which they happen; a display shows some of them."""

    # puts a text into the words of the user: the flags of a command, or the keywords of `grpo.train`
    reworded: Callable[[str], str] | None = None

    def planned(self, plan: Plan, run_dir: Path | None, notes: Sequence[str]) -> None:
        """Shows the plan; `run_dir` is None for a dry run, `notes` are lines worth reading."""

    def loading(self, what: str) -> None:
        """Shows that something slow begins."""

    def warmed(self, step: int, steps: int, loss: float) -> None:
        """Shows that a supervised step ended."""

    def evaluating(self, done: int, problems: int) -> None:
        """Shows how many held-out problems are done; not called in a notebook or on Ray."""

    def evaluated(self, step: int, accuracy: Estimate, env: str = "") -> None:
        """Shows the held-out accuracy after `step` steps; `env` names the environment where there are several."""

    def stepped(self, row: Mapping[str, Any], sample: Completion | None, scores: Mapping[str, str]) -> None:
        """Shows a step that ended: its metrics, one of its completions and what each reward gave it."""

    def foreseen(self, forecast: Forecast) -> None:
        """Shows a forecast of the rest of the run."""

    def warned(self, text: str) -> None:
        """Shows a warning; the run continues."""

    def ended(self, status: str, run_dir: Path, step: int) -> None:
        """Shows that the run is over: "done" or "interrupted"."""

    def timed(self, spent: str, tokens: str, advice: str | None) -> None:
        """Shows how a finished run spent its time and tokens, and the change that would help most."""

    def close(self) -> None:
        """Gives the terminal back, also after an error."""

    def worded(self, text: str) -> str:
        """Returns a text in the words of the user."""
        return text if self.reworded is None else self.reworded(text)


class Silent(Progress):
    """Shows nothing; every process but the first uses it."""
