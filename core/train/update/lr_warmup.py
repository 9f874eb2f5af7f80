"""Starts a learning-rate schedule above zero, so that the first step is not lost.

A schedule with n steps of rise gives the first optimizer step a rate of 0: its completions are sampled and scored, and
teach nothing. Here step s of the rise, from 0, has (s + 1) / (n + 1) of the rate.
"""

from __future__ import annotations

from functools import partial
from typing import Any


def rise_from_above_zero(scheduler: Any, steps: int) -> None:
    """Changes a schedule in place."""
    scheduler.lr_lambdas = [partial(_risen, factor, steps) for factor in scheduler.lr_lambdas]
    at = scheduler.last_epoch
    for group, base, factor in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = base * factor(at)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def _risen(factor: Any, steps: int, step: int) -> float:
    return (step + 1) / (steps + 1) if step < steps else float(factor(step))
