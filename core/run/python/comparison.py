"""Implements `grpo.compare`: the settings of two runs that differ, how far each came, the metrics by step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.display.html import table
from grpo.core.run.python.keywords import leaves
from grpo.core.run.python.result import Run, load
from grpo.core.text.printable import aligned

if TYPE_CHECKING:
    from pandas import DataFrame

_OF = {"train.warmup_lr": "train.warmup_steps"}  # settings that say nothing where another one is 0
_PLACES = ("out",)  # settings in which any two runs differ


@dataclass(frozen=True)
class Comparison:
    """Two runs, `run_a` and `run_b`, side by side; both are read when a table is asked for."""

    run_a: Run
    run_b: Run

    @cached_property
    def settings(self) -> DataFrame:
        """The settings that differ, a row for each, with a column for each run."""
        ours, theirs = (leaves(run.config.model_dump(mode="json")) for run in self._runs)
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name) and name not in _PLACES]
        names = [name for name in names if not (name in _OF and not ours[_OF[name]] and not theirs[_OF[name]])]
        models = {"model": (_model(self.run_a), _model(self.run_b))} if "model" in names else {}
        return self._table({name: (ours.get(name), theirs.get(name)) for name in names} | models)

    @cached_property
    def results(self) -> DataFrame:
        """How far they came: status, steps, held-out accuracy, the metrics of the last step; a column for each run."""
        facts = [
            {"status": run.status, "step": run.step, "before": run.before, "after": run.after} for run in self._runs
        ]
        last = [run.metrics.drop(index=0, errors="ignore").tail(1).to_dict("records") for run in self._runs]
        ours, theirs = ({**own, **(rows[0] if rows else {})} for own, rows in zip(facts, last, strict=True))
        return self._table({name: (ours.get(name), theirs.get(name)) for name in ours | theirs})

    @cached_property
    def metrics(self) -> DataFrame:
        """The metrics that both have, by step: a pair of columns for each, `("reward", "a")` and `("reward", "b")`."""
        from pandas import concat

        ours, theirs = (run.metrics for run in self._runs)
        shared = [name for name in ours if name in theirs]
        joined = concat({"a": ours[shared], "b": theirs[shared]}, axis=1)
        return joined.swaplevel(axis=1)[[(name, run) for name in shared for run in ("a", "b")]]

    @property
    def _runs(self) -> tuple[Run, Run]:
        return self.run_a, self.run_b

    def _table(self, values: dict[str, tuple[Any, Any]]) -> DataFrame:
        from pandas import DataFrame

        return DataFrame.from_dict(values, orient="index", columns=["a", "b"], dtype=object)

    def _lines(self) -> list[tuple[str, str, str]]:
        shown = [name for name in ("status", "step", "before", "after", "reward") if name in self.results.index]
        pairs = [("run", (self.run_a.path.name, self.run_b.path.name))]
        pairs += [(name, tuple(self.results.loc[name])) for name in shown]
        pairs += [(str(name), (row["a"], row["b"])) for name, row in self.settings.iterrows()]
        return [(name, _text(a), _text(b)) for name, (a, b) in pairs]

    def __repr__(self) -> str:
        return "\n".join(aligned(self._lines()))

    def _repr_html_(self) -> str:
        head, *rest = self._lines()
        return table([list(line) for line in rest], list(head))


def compare(run_a: str | Path | Run, run_b: str | Path | Run) -> Comparison:
    """Sets two runs side by side: what `grpo.train` returned, or run directories; they may still go on.

    To score one run's completions with other rewards, use `grpo diff RUN --new SPEC`. Raises UsageError if one of them
    does not hold a run.
    """
    runs = [run if isinstance(run, Run) else load(run) for run in (run_a, run_b)]
    return Comparison(*runs)


def _model(run: Run) -> str:
    return run.config.model or "the embedded model"


def _text(value: Any) -> str:
    return "-" if value is None or value != value else f"{value:.4g}" if isinstance(value, float) else str(value)
