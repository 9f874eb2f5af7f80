"""Reacts to the trainer's events: passes metrics on, completes checkpoints, and stops the run when asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from grpo.core.processes.group import any_of, wait
from grpo.core.record.checkpoint import drop_older, seal
from grpo.core.train.stop import StopRequest
from grpo.plugins.errors import RunError

DROPPED = ("epoch", "num_tokens", "num_input_tokens_seen", "step_time")  # the trainer measures a step by itself


@dataclass(eq=False)
class StepCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Passes each step's metrics on, completes checkpoints, and stops the run when asked."""

    on_metrics: Callable[[dict[str, Any]], None]  # receives one row per step, on the main process
    stop: StopRequest  # ends the run after the current step, with a checkpoint
    boundary: int  # a checkpoint can only resume at multiples of this many steps (num_iterations)
    keep: int
    # says after each step, on the first process, whether a checkpoint is wanted at once
    unsaved: Callable[[], bool] = lambda: False

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        step = state.global_step
        unsaved = any_of(state.is_world_process_zero and self.unsaved(), "the end of the step")
        stopping = self.stop.asked_of_any()
        if step % self.boundary == 0 and step < state.max_steps:
            control.should_save |= stopping or unsaved
            control.should_training_stop |= stopping

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **rest: Any) -> None:
        refuse_broken_update(state.global_step, logs or {})
        if state.is_world_process_zero and logs and "loss" in logs:
            self.on_metrics(metrics_row(state.global_step, logs))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: Any, **rest: Any) -> None:
        wait("the checkpoint")  # each process writes the state of its own random numbers
        if state.is_world_process_zero:
            folder = Path(args.output_dir)
            seal(folder / f"checkpoint-{state.global_step}")
            drop_older(folder, self.keep)


@dataclass(eq=False)
class StartCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Runs before the first step, when the policy is wrapped, sharded and on its device."""

    begin: Callable[[], None]

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **rest: Any) -> None:
        self.begin()


@dataclass(eq=False)
class LossCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Reports the loss of every supervised step, and ends the warm-up when the run is to stop."""

    on_loss: Callable[[int, float], None]
    stop: StopRequest

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        if self.stop.asked_of_any() and state.global_step < state.max_steps:
            control.should_training_stop = True

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **rest: Any) -> None:
        refuse_broken_update(state.global_step, logs or {}, "supervised step")
        if state.is_world_process_zero and logs and "loss" in logs:
            self.on_loss(state.global_step, float(logs["loss"]))


def refuse_broken_update(step: int, logs: Mapping[str, Any], what: str = "step") -> None:
    """Raises RunError, before a save, after an update whose loss or gradient is not finite."""
    for name, label in (("loss", "the loss"), ("grad_norm", "the gradient's norm")):
        value = logs.get(name)
        if value is not None and not math.isfinite(value):
            raise RunError(
                f"{label} of {what} {step} is {float(value)}, and the weights are unusable; they were not saved. "
                "Lower the learning rate, or train in float32 with train.dtype='float32'."
            )


def metrics_row(step: int, logs: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a row of metrics.jsonl: the step, then numbers; None for what is missing or not finite."""
    row: dict[str, Any] = {"step": step}
    for name, value in logs.items():
        if name in DROPPED:
            continue
        number = value if value is None else float(value)
        row[name] = None if number is None or not math.isfinite(number) else number
    return row
