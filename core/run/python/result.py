"""Gives Python access to a run directory: metrics, rollouts, curves and model, each read on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.config.python_objects import how_to_resume
from grpo.core.config.schema import RunConfig, load_config
from grpo.core.display.html import table
from grpo.core.policy.load import load_tokenizer
from grpo.core.policy.weights import find_run_weights, load_weights
from grpo.core.record.list import RunLine, list_runs
from grpo.core.record.run_dir import RunDir, open_run_dir, read_metrics, read_rollouts, rollout_steps
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from pandas import DataFrame
    from transformers import PreTrainedTokenizerBase

    from grpo.core.display.plot import Curves

AS_JSON = ("prompt", "columns", "messages", "info")  # columns of recorded rollouts that hold JSON


class Run:
    """The results of a run in the directory `path`, read anew each time, so that a running one can be watched."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._loaded: tuple[Path, Any, PreTrainedTokenizerBase] | None = None

    @property
    def status(self) -> str:
        """How the run ended: "done", "interrupted", "failed", "running", "killed", else "unknown" or "unreadable"."""
        return self._line.status

    @property
    def step(self) -> int:
        """The last recorded step."""
        return self._line.step

    @property
    def before(self) -> float | None:
        """Held-out accuracy before the first step, or None where it was not measured."""
        return self._line.before

    @property
    def after(self) -> float | None:
        """The last held-out accuracy, or None before there is a second one."""
        return self._line.after

    @property
    def config(self) -> RunConfig:
        """The configuration, with every value that the run chose."""
        return load_config(self._files.config, [], {})

    @property
    def metrics(self) -> DataFrame:
        """The metrics, a row for each step; step 0 is what was measured before the first one."""
        from pandas import DataFrame

        rows = read_metrics(self._files)
        return DataFrame(rows, columns=None if rows else ["step"]).set_index("step")

    @property
    def rollouts(self) -> Rollouts:
        """Every completion with its scores, by step: `run.rollouts[12]`, `run.rollouts[-1]`, `run.rollouts[1:9]`."""
        return Rollouts(self._files)

    @property
    def model(self) -> Any:
        """The policy, on the GPU if any: the final one, or the last checkpoint's. Raises UsageError without any."""
        return self._weights()[0]

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of `model`; it is loaded together with it."""
        return self._weights()[1]

    def plot(self) -> Curves:
        """Draws reward, accuracy, each reward and completion length over steps; a notebook shows what it returns."""
        from grpo.core.display.plot import curves

        return curves(read_metrics(self._files))

    def __repr__(self) -> str:
        return f"Run({', '.join([repr(str(self._shown)), *(f'{name} {value}' for name, value in self._facts())])})"

    def _repr_html_(self) -> str:
        rows = [("run", str(self._shown)), *self._facts()]
        if self._line.resumes:
            rows.append(("continue with", how_to_resume(self.config, self._shown)))
        return table(rows)

    @property
    def _shown(self) -> Path:
        return self.path.relative_to(Path.cwd()) if self.path.is_relative_to(Path.cwd()) else self.path

    @property
    def _files(self) -> RunDir:
        return RunDir(self.path)

    @property
    def _line(self) -> RunLine:
        (line,) = list_runs(self.path)
        return line

    def _facts(self) -> Iterator[tuple[str, str]]:
        line = self._line
        yield "status", line.problem or line.status
        if line.problem is None:
            yield "step", f"{line.step} of {line.steps}"
        if line.reward is not None:
            yield "reward", f"{line.reward:.3g}"
        if line.before is not None:
            reached = "" if line.after is None else f" -> {line.after:.1%}"
            yield "held-out accuracy", f"{line.before:.1%}{reached}"

    def _weights(self) -> tuple[Any, PreTrainedTokenizerBase]:
        weights = find_run_weights(self.path)
        assert weights.trained is not None
        if self._loaded is None or self._loaded[0] != weights.trained.folder:
            self._loaded = None  # so that not two of them are in memory
            tokenizer = load_tokenizer(weights.tokenizer_source)
            self._loaded = (weights.trained.folder, load_weights(weights), tokenizer)
        return self._loaded[1], self._loaded[2]


class Rollouts:
    """The recorded completions of a run, read from the disk step by step.

    A table has the columns of the files: step, group, prompt, completion, tokens, finish_reason, columns (what the
    rewards read), reward, advantage, and for each reward `outcome.NAME`, `score.NAME` and `reason.NAME`.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run

    @property
    def steps(self) -> list[int]:
        return rollout_steps(self._run)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[DataFrame]:
        return (self[step] for step in self.steps)

    def __getitem__(self, step: int | slice) -> DataFrame:
        """Returns the table of a step, of the last but n for -n, or of a slice, its end included. Raises UsageError."""
        from pandas import DataFrame, concat

        steps = self.steps
        if isinstance(step, slice):
            low, high = (_from_the_end(steps, end) for end in (step.start, step.stop))
            after = [number for number in steps if low is None or number >= low]
            chosen = [number for number in after if high is None or number <= high][:: step.step]
            if not chosen:
                raise UsageError(f"{self._run.path} has no rollouts of these steps; it has: {_range(steps)}.")
            return concat([self[number] for number in chosen], ignore_index=True)
        if not isinstance(step, int):
            raise UsageError(f"{step!r} is not a step. Give a number, or a slice of numbers.")
        if step < -len(steps):
            raise UsageError(f"{self._run.path} has rollouts of {len(steps)} steps: {_range(steps)}.")
        rows = read_rollouts(self._run, _from_the_end(steps, step) or 0)
        return DataFrame([{name: _read(name, value) for name, value in row.items()} for row in rows])

    def __repr__(self) -> str:
        return f"Rollouts(steps {_range(self.steps)})"

    def _repr_html_(self) -> str:
        if not self.steps:
            return table([("rollouts", "none yet")])
        last = self.steps[-1]
        rows = read_rollouts(self._run, last)
        title = f"steps {_range(self.steps)}; of step {last}, {len(rows)} completions:"
        scores = [name for name in rows[0] if name.startswith("score.")]
        heads = ["group", "completion", *scores, "reward", "advantage"]
        return table([("rollouts", title)]) + table([[row[name] for name in heads] for row in rows[:5]], heads)


def load(run_dir: str | Path) -> Run:
    """Opens a run directory, of a run that is over or still going on. Raises UsageError: it does not hold a run."""
    if not isinstance(run_dir, (str, Path)):
        raise UsageError(f"{run_dir!r} is not a run. Give what grpo.train returned, or the path of a run directory.")
    return Run(open_run_dir(Path(run_dir).expanduser()).path)


def _from_the_end(steps: list[int], step: int | None) -> int | None:
    return step if step is None or step >= 0 or not steps else steps[max(step, -len(steps))]


def _read(name: str, value: Any) -> Any:
    return json.loads(value) if name in AS_JSON and value is not None else value


def _range(steps: list[int]) -> str:
    return f"{steps[0]} to {steps[-1]}" if steps else "none yet"
