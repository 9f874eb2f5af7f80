"""Decides where a run writes, how often it saves checkpoints, and how many bytes they take."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from grpo.core.config.defaults import SAVE_EVERY
from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import Settings
from grpo.core.record.disk import refuse_readonly, refuse_unwritable
from grpo.plugins.errors import UsageError

MODULES = {"otel": ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")}  # that a tracker is
RUNS = Path("runs")  # where run directories appear that the user does not name
ADAM_BYTES = 8  # two float32 moments per trained parameter
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def decide_output(config: RunConfig, *, fresh: bool) -> int:
    """Returns the steps between checkpoints; `fresh`: the run directory must not exist yet. Raises UsageError."""
    refuse_missing_trackers(config.output.report_to)
    if fresh and config.out is not None:
        refuse_unwritable(config.out)
    elif fresh:
        refuse_readonly(RUNS)
    save_every, iterations = config.output.save_every, config.loss.num_iterations
    if save_every is None:
        save_every = math.ceil(SAVE_EVERY / iterations) * iterations
    elif save_every % iterations:
        raise UsageError(
            f"output.save_every {save_every} is not a multiple of loss.num_iterations {iterations}: a checkpoint "
            f"between two passes over a batch could not resume. Choose {-(-save_every // iterations) * iterations}."
        )
    return save_every


def refuse_missing_trackers(trackers: Sequence[str]) -> None:
    """Refuses trackers that are not installed."""
    for tracker in trackers:
        if not _installed(MODULES.get(tracker, (tracker,))):
            raise UsageError(
                f"--report-to {tracker}: it is not installed. Install it with: pip install 'grpo-kit[{tracker}]'"
            )


def _installed(modules: Sequence[str]) -> bool:
    try:
        return all(importlib.util.find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # of what a module stands in
        return False


def disk_bytes(settings: Settings, parameters: int) -> int:
    """Returns the bytes of the kept checkpoints, the one being written and the final model."""
    weights = parameters * DTYPE_BYTES[settings.train.dtype]
    if settings.lora.enabled:  # the adapter's size depends on its targets; a tenth of the weights is a generous bound
        weights //= 10
        trained = weights // 4
    else:
        trained = parameters
    checkpoint = weights + trained * ADAM_BYTES
    warmed = weights if settings.train.warmup_steps else 0
    return (settings.output.keep + 1) * checkpoint + weights + warmed
