"""What happens between steps: when accuracy is measured, what may not be saved, and what metrics.jsonl can hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from grpo.core.train.callbacks import LossCallback, StepCallback, StopRequest, metrics_row
from grpo.plugins.errors import RunError


def step_callback(measured: list[int], rows: list[dict[str, Any]], *, stop: bool = False) -> StepCallback:
    request = StopRequest()
    request.asked = stop
    return StepCallback(evaluate=measured.append, evaluate_every=5, on_metrics=rows.append, stop=request, boundary=1)


@pytest.fixture
def arguments(tmp_path: Path) -> TrainingArguments:
    return TrainingArguments(output_dir=str(tmp_path), use_cpu=True)


def test_a_stop_where_accuracy_is_due_measures_it_too(arguments: TrainingArguments) -> None:
    """The resumed run goes on with the next step, and would never have it."""
    measured: list[int] = []
    callback = step_callback(measured, [], stop=True)
    for step in (4, 5):
        control = callback.on_step_end(arguments, TrainerState(global_step=step, max_steps=20), TrainerControl())
        assert control.should_save
        assert control.should_training_stop
    assert measured == [5]


@pytest.mark.parametrize("broken", [{"loss": 0.1, "grad_norm": math.nan}, {"loss": 0.1, "grad_norm": math.inf}])
def test_an_update_with_a_broken_gradient_ends_the_run_before_a_checkpoint(
    broken: dict[str, float], arguments: TrainingArguments
) -> None:
    rows: list[dict[str, Any]] = []
    state, control = TrainerState(global_step=3, max_steps=20), TrainerControl()
    with pytest.raises(RunError, match=r"the gradient's norm of step 3 is (nan|inf)"):
        step_callback([], rows).on_log(arguments, state, control, logs=broken)
    assert rows == []


def test_a_broken_supervised_step_ends_the_warm_up(arguments: TrainingArguments) -> None:
    told = LossCallback(lambda step, loss: None, StopRequest())
    with pytest.raises(RunError, match="the loss of supervised step 2 is nan"):
        told.on_log(arguments, TrainerState(global_step=2), TrainerControl(), logs={"loss": math.nan})


def test_metrics_are_json_for_every_reader() -> None:
    row = metrics_row(2, {"loss": 0.5, "kl": math.inf, "reward": math.nan, "epoch": 1})
    assert json.loads(json.dumps(row, allow_nan=False)) == {"step": 2, "loss": 0.5, "kl": None, "reward": None}
