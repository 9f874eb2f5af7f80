"""Creates the callbacks that send a run's metrics to experiment trackers.

W&B and MLflow know a run by an id in its directory, trackio by its name: a resumed run continues its chart.
"""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from textwrap import shorten
from typing import Any
from uuid import uuid4

from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.integrations import TensorBoardCallback, WandbCallback

from grpo.core.config.settings import OutputSettings
from grpo.core.processes.rank import is_first
from grpo.core.record.run_dir import RolloutRow, RunDir, read_json, write_json
from grpo.core.text.secrets import without_secrets
from grpo.core.train.batch.batch import Batch
from grpo.core.train.batch.rollout_rows import rollout_rows
from grpo.core.train.part import Part
from grpo.core.train.trl_arguments import PROJECT
from grpo.plugins.errors import UsageError

SAMPLED_EVERY = 20  # steps from one table of rollouts to the next
SAMPLED = 16  # rollouts in it
COLUMNS = ("step", "group", "prompt", "completion", "reward", "advantage", "right")
MARKUP = re.compile(r"([\\`*_{}\[\]<>()#|!&~$])")
LONGEST = 500  # characters of a value of MLflow's parameters
LONGEST_REASON = 600  # characters of MLflow's own error
ATTEMPTS = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


class Trackers(Part):
    """The trackers of one run that are opened here; `until` closes them, also where the run fails."""

    def __init__(self, output: OutputSettings, run: RunDir, until: ExitStack) -> None:
        self.callbacks: list[TrainerCallback] = []
        self._shown: list[WandbChart | MlflowRun | TrackioRun] = []
        if "tensorboard" in output.report_to:
            events = TensorBoardCallback()
            events.logging_dir = str(run.events)  # not among the checkpoints
            self.callbacks.append(events)
        for name, kind in (("wandb", WandbChart), ("mlflow", MlflowRun), ("trackio", TrackioRun)):
            if name in output.report_to:
                self._shown.append(kind(output, run, until))
        self.callbacks += self._shown

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Shows some rollouts of the first step and of every twentieth, as a table, from the first process."""
        if self._shown and is_first() and (batch.step == 1 or batch.step % SAMPLED_EVERY == 0):
            table = [_cells(row) for row in sampled(rollout_rows(batch))]
            for tracker in self._shown:
                tracker.show(batch.step, table)
        return {}


def open_stores(output: OutputSettings) -> None:
    """Opens what a run could not begin without, MLflow's store; the first process calls it."""
    if "mlflow" not in output.report_to:
        return
    import mlflow

    if mlflow.active_run() is not None:
        return
    given = ATTEMPTS in os.environ
    os.environ.setdefault(ATTEMPTS, "1")  # by itself it asks a server that is not there for four minutes
    try:
        experiment_of(output)
    finally:
        if not given:
            del os.environ[ATTEMPTS]


def experiment_of(output: OutputSettings) -> str:
    """Returns the id of a run's experiment in MLflow, which is made where there is none. Raises UsageError."""
    import mlflow

    name = output.project or os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    try:
        return str(mlflow.set_experiment(name).experiment_id)
    except Exception as error:  # a driver, a folder and a server that are not there end in errors of other libraries
        reason = shorten(f"{type(error).__name__}: {error}", LONGEST_REASON, placeholder=" ...")
        problem = f"the experiment '{name}' in {mlflow.get_tracking_uri()} cannot be opened: {reason}"
        raise UsageError(
            f"--report-to mlflow: {without_secrets(problem, '(secret)')} Name another store by MLFLOW_TRACKING_URI, "
            "such as sqlite:///FILE or http://HOST:5000. A file takes what this installs: "
            "pip install 'grpo-kit[mlflow]'"
        ) from None


class WandbChart(WandbCallback):  # type: ignore[misc]  # transformers is not typed
    """W&B with one chart for each run; a chart that the user began before (`wandb.init`) is used and left open.

    W&B's own variables decide what the settings leave open. `run`: keeps the id in `wandb.json`.
    """

    def __init__(self, output: OutputSettings, run: RunDir, until: ExitStack) -> None:
        super().__init__()
        self._output, self._run_dir, self._until = output, run, until

    def setup(self, args: TrainingArguments, state: TrainerState, model: Any, **rest: Any) -> None:
        if state.is_world_process_zero and self._wandb.run is None:
            self._wandb.init(
                project=self._output.project or os.environ.get("WANDB_PROJECT", PROJECT),
                name=self._output.run_name or os.environ.get("WANDB_NAME", self._run_dir.path.name),
                group=self._output.run_group,
                tags=list(self._output.tags) or None,
                id=os.environ.get("WANDB_RUN_ID") or kept_id(self._run_dir.wandb, lambda: uuid4().hex),
                resume="allow",
                config={"grpo": read_json(self._run_dir.config)},
            )
            self._until.callback(self._wandb.finish)
        super().setup(args, state, model, **rest)

    def show(self, step: int, table: Sequence[Sequence[Any]]) -> None:
        if self._wandb.run is not None:
            self._wandb.log({"rollouts": self._wandb.Table(list(COLUMNS), list(table)), "train/global_step": step})


class MlflowRun(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """MLflow with one run for each of ours, by the id in `mlflow.json`; one that is active is used."""

    def __init__(self, output: OutputSettings, run: RunDir, until: ExitStack) -> None:
        import mlflow

        self._mlflow = mlflow
        self._output, self._run_dir, self._until = output, run, until

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **rest: Any) -> None:
        if not state.is_world_process_zero or self._mlflow.active_run() is not None:
            return
        experiment = experiment_of(self._output)
        known = self._run_dir.mlflow.is_file()
        tags = dict.fromkeys(self._output.tags, "true")
        tags |= {"group": self._output.run_group} if self._output.run_group else {}

        def made() -> str:
            name = self._output.run_name or self._run_dir.path.name
            client = self._mlflow.MlflowClient()
            return str(client.create_run(experiment, run_name=name, tags={**tags, "mlflow.runName": name}).info.run_id)

        self._mlflow.start_run(run_id=kept_id(self._run_dir.mlflow, made))
        self._until.callback(self._mlflow.end_run)
        if not known:  # they cannot be changed later, as a run that is made longer would
            settings = flat(read_json(self._run_dir.config) or {})
            self._mlflow.log_params({name: value[:LONGEST] for name, value in settings.items()})

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **rest: Any) -> None:
        if state.is_world_process_zero and self._mlflow.active_run() is not None:
            numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, (int, float))}
            known = {name: value for name, value in numbers.items() if not math.isnan(value)}
            self._mlflow.log_metrics(known, step=state.global_step)

    def show(self, step: int, table: Sequence[Sequence[Any]]) -> None:
        if self._mlflow.active_run() is not None:
            columns = {name: [row[place] for row in table] for place, name in enumerate(COLUMNS)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it asks pandas in a way that pandas 3 warns of
                self._mlflow.log_table(columns, artifact_file=f"rollouts/step-{step:06d}.json")


class TrackioRun(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """trackio with one run for each of ours, on this machine unless TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says where.

    A run that the user began before (`trackio.init`) is used and left open. `run`: keeps the name in `trackio.json`.
    """

    def __init__(self, output: OutputSettings, run: RunDir, until: ExitStack) -> None:
        import trackio

        self._trackio = trackio
        self._output, self._run_dir, self._until = output, run, until

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **rest: Any) -> None:
        if not state.is_world_process_zero or self._active() is not None:
            return
        known = self._run_dir.trackio.is_file()
        with redirect_stdout(StringIO()):  # which may be a table or JSON that somebody reads
            self._trackio.init(
                project=self._output.project or PROJECT,
                name=kept_id(self._run_dir.trackio, lambda: self._output.run_name or self._run_dir.path.name),
                group=self._output.run_group,
                resume="allow" if known else "never",
                config={**flat(read_json(self._run_dir.config) or {}), "tags": ", ".join(self._output.tags)},
                embed=False,
            )
        self._until.callback(self._finish)

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **rest: Any) -> None:
        if state.is_world_process_zero and (run := self._active()) is not None:
            numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, (int, float))}
            run.log({name: value for name, value in numbers.items() if math.isfinite(value)}, step=state.global_step)

    def show(self, step: int, table: Sequence[Sequence[Any]]) -> None:
        """Logs a table of rollouts, whose texts its page would read as Markdown."""
        if (run := self._active()) is not None:
            rows = [[plain(cell) if isinstance(cell, str) else cell for cell in row] for row in table]
            run.log({"rollouts": self._trackio.Table(list(COLUMNS), rows)}, step=step)

    def _active(self) -> Any:
        return self._trackio.context_vars.current_run.get()

    def _finish(self) -> None:
        if self._active() is not None:
            with redirect_stdout(StringIO()):
                self._trackio.finish()


def plain(text: str) -> str:
    """Returns text that Markdown shows as it is: no markup, no HTML, no picture that a page would fetch."""
    return MARKUP.sub(r"\\\1", text)


def kept_id(file: Path, made: Callable[[], str]) -> str:
    """Returns a tracker's id of a run, made at first and kept in a file of the run."""
    if not file.is_file():
        write_json(file, {"id": made()})
    return str(read_json(file)["id"])


def sampled(rows: Sequence[RolloutRow]) -> list[RolloutRow]:
    """Returns the best and the worst rollout of each group, of so many groups as fit a table."""
    groups: dict[int, list[RolloutRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    chosen: list[RolloutRow] = []
    for members in groups.values():
        scored = sorted(members, key=lambda row: -math.inf if row.reward is None else row.reward)
        chosen += scored[-1:] if len(scored) == 1 else [scored[-1], scored[0]]
    return chosen[:SAMPLED]


def flat(tree: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Returns settings by their dotted names, as text."""
    pairs: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            pairs |= flat(value, f"{before}{name}.")
        else:
            pairs[before + name] = value if isinstance(value, str) else json.dumps(value)
    return pairs


def _cells(row: RolloutRow) -> list[Any]:
    prompt = "\n".join(str(message.get("content") or "") for message in json.loads(row.prompt))
    return [row.step, row.group, prompt, row.completion, row.reward, row.advantage, row.right]
