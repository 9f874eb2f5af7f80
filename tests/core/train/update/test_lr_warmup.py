"""The first learning rates of a run."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from transformers import get_scheduler

from grpo.core.train.update.adamw import rise_from_above_zero


def rates(kind: Literal["constant_with_warmup", "linear", "cosine", "constant"], rise: int, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=6.0)
    scheduler = get_scheduler(kind, optimizer, num_warmup_steps=rise, num_training_steps=steps)
    rise_from_above_zero(scheduler, rise)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_the_first_step_of_a_rise_teaches_and_the_last_is_below_the_full_rate() -> None:
    assert rates("constant_with_warmup", 5, 7) == pytest.approx([1, 2, 3, 4, 5, 6, 6])
    assert rates("constant_with_warmup", 1, 3) == pytest.approx([3, 6, 6])
    assert rates("constant", 0, 2) == [6, 6]


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_what_comes_after_the_rise_is_as_it_was(kind: Literal["linear", "cosine"]) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=6.0)
    plain = get_scheduler(kind, optimizer, num_warmup_steps=2, num_training_steps=6)
    factors = [6.0 * plain.lr_lambdas[0](step) for step in range(2, 6)]
    assert rates(kind, 2, 6) == pytest.approx([2, 4, *factors])
    assert min(rates(kind, 2, 6)) > 0


def test_a_resumed_schedule_goes_on_where_it_was() -> None:
    def made() -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=6.0)
        scheduler = get_scheduler("constant_with_warmup", optimizer, num_warmup_steps=5, num_training_steps=9)
        rise_from_above_zero(scheduler, 5)
        return optimizer, scheduler

    optimizer, scheduler = made()
    for _ in range(2):
        optimizer.step()
        scheduler.step()
    again, resumed = made()
    resumed.load_state_dict(scheduler.state_dict())
    again.load_state_dict(optimizer.state_dict())
    again.step()
    resumed.step()
    assert again.param_groups[0]["lr"] == pytest.approx(4.0)
