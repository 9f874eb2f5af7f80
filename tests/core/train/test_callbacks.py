"""What happens between steps: a stop, what may not be saved, and what metrics.jsonl can hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from grpo.core.train.callbacks import LossCallback, StepCallback, metrics_row
from grpo.core.train.stop import StopRequest
from grpo.plugins.errors import RunError


def step_callback(rows: list[dict[str, Any]], *, stop: bool = False, boundary: int = 1) -> StepCallback:
    request = StopRequest()
    request.asked = stop
    return StepCallback(on_metrics=rows.append, stop=request, boundary=boundary, keep=2)


@pytest.fixture
def arguments(tmp_path: Path) -> TrainingArguments:
    return TrainingArguments(output_dir=str(tmp_path), use_cpu=True)


@pytest.mark.parametrize(("step", "stops"), [(4, True), (5, False), (20, False)])
def test_a_stop_waits_for_a_step_that_a_checkpoint_can_resume(
    step: int, stops: bool, arguments: TrainingArguments
) -> None:
    """Not in the middle of the passes over a batch; after the last step there is nothing left to stop."""
    callback = step_callback([], stop=True, boundary=2)
    control = TrainerControl()
    callback.on_step_end(arguments, TrainerState(global_step=step, max_steps=20), control)
    assert (control.should_save, control.should_training_stop) == (stops, stops)


@pytest.mark.parametrize("broken", [{"loss": 0.1, "grad_norm": math.nan}, {"loss": 0.1, "grad_norm": math.inf}])
def test_an_update_with_a_broken_gradient_ends_the_run_before_a_checkpoint(
    broken: dict[str, float], arguments: TrainingArguments
) -> None:
    rows: list[dict[str, Any]] = []
    state, control = TrainerState(global_step=3, max_steps=20), TrainerControl()
    with pytest.raises(RunError, match=r"the gradient's norm of step 3 is (nan|inf)"):
        step_callback(rows).on_log(arguments, state, control, logs=broken)
    assert rows == []


def test_a_broken_supervised_step_ends_the_warm_up(arguments: TrainingArguments) -> None:
    callback = LossCallback(lambda step, loss: None, StopRequest())
    with pytest.raises(RunError, match="the loss of supervised step 2 is nan"):
        callback.on_log(arguments, TrainerState(global_step=2), TrainerControl(), logs={"loss": math.nan})


def test_metrics_are_json_for_every_reader() -> None:
    row = metrics_row(2, {"loss": 0.5, "kl": math.inf, "reward": math.nan, "epoch": 1})
    assert json.loads(json.dumps(row, allow_nan=False)) == {"step": 2, "loss": 0.5, "kl": None, "reward": None}
