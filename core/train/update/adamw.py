"""Implements AdamW that keeps the rounding errors of bfloat16 weights, and schedules that rise from above zero.

Theory of operation. A bfloat16 weight w only changes when it is moved by more than about |w| / 512, so at a learning
rate of 1e-6 full fine-tuning would learn nothing; nor could the mean squared gradient fall, which decays by a
thousandth a step. Both keep the lower halves of a float32 in two more bytes, and updates are those of float32. The mean
gradient decays by a tenth and is rounded.

The update is AdamW's (arXiv 1711.05101, algorithm 2), element by element, so a shard of a weight is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor

STATES = 4  # tensors of the size of the weights: two moments, and the lower halves of the weights and of the second
_HALF_STEP = 1 << 15  # half of what the last bit of an upper half is worth
_PIECE = 1 << 22  # elements that are updated at a time


class CompensatedAdamW(torch.optim.Optimizer):
    """AdamW whose bfloat16 weights accumulate updates below their rounding; other dtypes are as in torch.

    `eps`: added to the root of the mean squared gradient. `weight_decay`: decoupled, per unit of the learning rate.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)
        return loss

    def _update(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        names = ["exp_avg", "exp_avg_sq"]
        if weight.dtype == torch.bfloat16:
            names += ["exp_avg_sq_low", "weight_low"]
        for name in names:
            if name not in state:
                state[name] = torch.zeros_like(weight)
        state["step"] = state.get("step", 0) + 1
        tensors = [_rows(tensor) for tensor in (weight, weight.grad, *(state[name] for name in names))]
        rows = max(1, _PIECE // max(1, tensors[0][:1].numel()))
        for begin in range(0, len(tensors[0]), rows):
            _update_rows(*(tensor[begin : begin + rows] for tensor in tensors), step=state["step"], group=group)


def _update_rows(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    average: torch.Tensor,
    average_square: torch.Tensor,
    square_low: torch.Tensor | None = None,
    low: torch.Tensor | None = None,
    *,
    step: int,
    group: dict[str, Any],
) -> None:
    rate, (decay, decay_square) = group["lr"], group["betas"]
    gradient = gradient.float()
    mean = average.float().lerp(gradient, 1 - decay)
    square = joined(average_square, square_low).mul(decay_square).addcmul_(gradient, gradient, value=1 - decay_square)
    root = square.div(1 - decay_square**step).sqrt_().add_(group["eps"])
    exact = joined(weight, low).mul(1 - rate * group["weight_decay"])
    exact.addcdiv_(mean, root, value=-rate / (1 - decay**step))
    average.copy_(mean)
    _write(square, average_square, square_low)
    _write(exact, weight, low)


def joined(high: torch.Tensor, low: torch.Tensor | None) -> torch.Tensor:
    """Returns the float32 numbers whose rounded upper halves are `high` (bfloat16) and whose lower halves are `low`.

    `low`: 16-bit integers stored as bfloat16; without it `high` is of any floating dtype.
    """
    if low is None:
        return high.float()
    return (high.view(torch.int16).int().mul_(2 * _HALF_STEP) + low.view(torch.int16)).view(torch.float32)


def _write(exact: torch.Tensor, high: torch.Tensor, low: torch.Tensor | None) -> None:
    if low is None:
        high.copy_(exact)
        return
    bits = exact.view(torch.int32)
    upper = (bits + _HALF_STEP) >> 16
    high.view(torch.int16).copy_(upper)
    low.view(torch.int16).copy_(bits - (upper << 16))


def _rows(tensor: Any) -> torch.Tensor:
    here: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return here if here.dim() else here.view(1)


def compensated_for(model: Any, args: Any) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """Returns the optimizer class and arguments for bfloat16 weights; None for others, and for DeepSpeed's own."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if args.deepspeed_plugin is not None or not any(parameter.dtype == torch.bfloat16 for parameter in trained):
        return None
    return CompensatedAdamW, {
        "lr": args.learning_rate,
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
    }


def rise_from_above_zero(scheduler: Any, steps: int) -> None:
    """Makes step s, from 0, of `steps` warm-up steps have (s + 1) / (steps + 1) of the rate, so that none is lost."""
    scheduler.lr_lambdas = [partial(_risen, factor, steps) for factor in scheduler.lr_lambdas]
    at = scheduler.last_epoch
    for group, base, factor in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = base * factor(at)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def _risen(factor: Any, steps: int, step: int) -> float:
    return (step + 1) / (steps + 1) if step < steps else float(factor(step))
