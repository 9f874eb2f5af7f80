"""Shows a run below the notebook cell that trains, in one output that is updated in place."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo.core.config.python_objects import how_to_resume
from grpo.core.display.first_prompt import first_prompt
from grpo.core.display.html import bar, block, line, table
from grpo.core.display.progress import Progress
from grpo.core.display.terminal import Redrawn, describe, display_for, estimate, headline, number, sparkline, timing
from grpo.core.plan import Plan
from grpo.core.text.printable import counted
from grpo.core.text.stats import Estimate
from grpo.plugins.types import Completion

WARNING = "border-left:3px solid #E69F00;padding-left:0.5em;white-space:pre-wrap"


def display_here(*, quiet: bool) -> Progress:
    """Returns the display that fits: below a notebook's cell, or as on the command line."""
    return NotebookPanel() if not quiet and in_notebook() else display_for(quiet=quiet)


def in_notebook() -> bool:
    """Returns whether this is a kernel that shows HTML: Jupyter and the like, and not IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookPanel(Redrawn):
    """One output of a cell, redrawn as the run goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._now = "planning"
        self._handle: Any = None
        self._head: list[tuple[str, str]] = []
        self._prompt: tuple[str, str] | None = None
        self._lines: list[str] = []
        self._warnings: dict[str, None] = {}
        self._running = False

    def planned(self, plan: Plan, run_dir: Path | None, notes: Sequence[str]) -> None:
        self._plan, self._prompt = plan, first_prompt(plan)
        self._head = [(name, self.worded(value)) for name, value in describe(plan, run_dir)]
        self._running = run_dir is not None
        if not self._running:  # a dry run, which is over
            *notes, self._now = notes
        self._lines += notes
        self._draw()

    def loading(self, what: str) -> None:
        self._say(f"loading {what}")

    def warmed(self, step: int, steps: int, loss: float) -> None:
        self._say(f"supervised warm-up, step {step} of {steps}, loss {loss:.3f}")

    def evaluated(self, step: int, accuracy: Estimate, env: str = "") -> None:
        self._held_out.append(f"{f'{env}: ' if env else ''}{estimate(accuracy)} after {counted(step, 'step')}")
        self._draw()

    def stepped(self, row: Mapping[str, Any], sample: Completion | None, scores: Mapping[str, str]) -> None:
        self._now = f"step {row['step']} of {self._steps}, {row.get('time/step') or 0:.1f} s"
        super().stepped(row, sample, scores)

    def warned(self, text: str) -> None:
        self._warnings[self.worded(text)] = None
        self._draw()

    def ended(self, status: str, run_dir: Path, step: int) -> None:
        self._running = False
        if status == "interrupted" and self._plan is not None:
            self._lines.append(f"continue with: {how_to_resume(self._plan.config, run_dir)}")
        self._forecast = None
        ending = "stopped" if status == "interrupted" else "done"
        self._say(f"{ending} after {counted(step, 'step')}")

    def timed(self, spent: str, tokens: str, advice: str | None) -> None:
        self._lines += timing(spent, tokens, advice and self.worded(advice))
        self._draw()

    def close(self) -> None:
        if self._running:  # an error ends it, which stands below
            self._forecast = None
            self._say(f"failed after {counted(self._row.get('step', 0), 'step')}")

    def _draw(self) -> None:
        from IPython.display import display

        data = {"text/plain": self._now, "text/html": self._html()}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)

    def _html(self) -> str:
        metrics = [(label, number(self._row[key]), sparkline(self._history[key])) for label, key in headline(self._row)]
        parts = [table(self._head)] if self._head else []
        parts += [block(*self._prompt)] if self._prompt is not None else []
        parts += [bar(self._row["step"], self._steps)] if self._row else []
        parts.append(line(self._now))
        parts += [table(metrics)] if metrics else []
        parts += [line(f"held-out accuracy: {text}") for text in self._held_out[-4:]]
        parts += [line(text) for text in self._to_go()]
        if self._sample is not None:
            title, question, text = self._sample
            parts.append(block(title, f"{question}\n\n{text}"))
        parts += [line(f"warning: {text}", WARNING) for text in self._warnings]
        parts += [line(text) for text in self._lines]
        return f"<div>{''.join(parts)}</div>"
