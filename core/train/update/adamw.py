"""Implements AdamW for 16-bit weights with the rounding errors of each update, and schedules that rise from above zero.

Theory of operation. A bfloat16 number has 8 significant bits, so a weight w only changes when it is moved by more than
about |w| / 512. At a learning rate of 1e-6 that is next to no weight: full fine-tuning would run, and learn nothing.
Nor could the mean squared gradient fall, which decays by a thousandth a step: steps would stay as short as the largest
gradient once made them. A bfloat16 number is the upper half of a float32, so each of the two has its lower half beside
it, in two bytes more, and updates are those of float32 weights. The mean gradient decays by a tenth a step, and is
rounded.

The update is AdamW's (arXiv 1711.05101, algorithm 2). It goes element by element, so that the part of a sharded weight
that is here is enough. A large weight is updated some rows at a time, so that its float32 copies stay small, and small
ones are copied together, as a GPU takes longer to be told of an operation than for a few numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor

STATES = 4  # tensors of the size of the weights: two moments, and the lower halves of the weights and of the second
_HALF_STEP = 1 << 15  # half of what the last bit of an upper half is worth
_PIECE = 1 << 22  # elements
_SMALL = 1 << 20  # elements of the weights that are updated together


class CompensatedAdamW(torch.optim.Optimizer):
    """AdamW whose bfloat16 weights add up updates that are smaller than their rounding; others are as in torch.

    `params`: as of any optimizer of torch; floating point, on any device. `betas`: decay of the mean gradient and of
    the mean squared one. `eps`: added to the root of the latter. `weight_decay`: decoupled, per unit of the learning
    rate.
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
        """Makes one update of every weight that has a gradient."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            alike: dict[Any, list[list[torch.Tensor]]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    step, *tensors = self._with_state(weight)
                    kind = (step, weight.device, *(tensor.dtype for tensor in tensors))
                    alike.setdefault(kind, []).append(tensors)
            for (step, *_), weights in alike.items():
                for some in _pieces(weights):
                    _update_together(some, step, group)
        return loss

    def _with_state(self, weight: torch.Tensor) -> tuple[Any, ...]:
        """Counts a step of a weight; returns the count, and what this process holds of weight, gradient and states."""
        state = self.state[weight]
        names = ["exp_avg", "exp_avg_sq"]
        if weight.dtype == torch.bfloat16:
            names += ["exp_avg_sq_low", "weight_low"]
        for name in names:
            if name not in state:
                state[name] = torch.zeros_like(weight)
        state["step"] = state.get("step", 0) + 1
        return state["step"], *(_rows(tensor) for tensor in (weight, weight.grad, *(state[name] for name in names)))


def _pieces(weights: list[list[torch.Tensor]]) -> Iterator[list[list[torch.Tensor]]]:
    """Yields what is updated at a time: some rows of a large weight with its states, or several small weights."""
    together: list[list[torch.Tensor]] = []
    size = 0
    for tensors in weights:
        if tensors[0].numel() > _SMALL:
            rows = max(1, _PIECE // max(1, tensors[0][:1].numel()))
            for begin in range(0, len(tensors[0]), rows):
                yield [[tensor[begin : begin + rows] for tensor in tensors]]
            continue
        if together and size + tensors[0].numel() > _SMALL:
            yield together
            together, size = [], 0
        together.append(tensors)
        size += tensors[0].numel()
    if together:
        yield together


def _update_together(weights: list[list[torch.Tensor]], step: int, group: dict[str, Any]) -> None:
    if len(weights) == 1:
        _update_rows(*weights[0], step=step, group=group)
        return
    columns = list(zip(*weights, strict=True))
    flat = [torch.cat([tensor.reshape(-1) for tensor in column]) for column in columns]
    _update_rows(*flat, step=step, group=group)
    del columns[1], flat[1]  # the gradients, which nothing changes
    for column, whole in zip(columns, flat, strict=True):
        parts = whole.split([tensor.numel() for tensor in column])
        torch._foreach_copy_(column, [part.view_as(tensor) for part, tensor in zip(parts, column, strict=True)])


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
    """Returns the float32 numbers whose upper halves, rounded, are `high` and whose lower halves are `low`.

    `high`: bfloat16, or any floating point without `low`. `low`: of the same shape: 16 bits each that stand for an
    integer, whatever number they make in bfloat16.
    """
    if low is None:
        return high.float()
    return (high.view(torch.int16).int().mul_(2 * _HALF_STEP) + low.view(torch.int16)).view(torch.float32)


def _write(exact: torch.Tensor, high: torch.Tensor, low: torch.Tensor | None) -> None:
    """Writes float32 numbers into their halves, or into `high` alone."""
    if low is None:
        high.copy_(exact)
        return
    bits = exact.view(torch.int32)
    upper = (bits + _HALF_STEP) >> 16
    high.view(torch.int16).copy_(upper)
    low.view(torch.int16).copy_(bits - (upper << 16))


def _rows(tensor: Any) -> torch.Tensor:
    """Returns the shard of a distributed tensor that this process holds, or the tensor; a single number is a row."""
    here: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return here if here.dim() else here.view(1)


def compensated_for(model: Any, args: Any) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """Returns the optimizer class and arguments for a model that trains weights in bfloat16; None for any other.

    `args`: of transformers' trainer. DeepSpeed holds exact weights of its own, and None is returned.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if args.deepspeed_plugin is not None or not any(parameter.dtype == torch.bfloat16 for parameter in trained):
        return None
    return CompensatedAdamW, {
        "lr": args.learning_rate,
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
    }


def rise_from_above_zero(scheduler: Any, steps: int) -> None:
    """Changes a schedule with so many steps of rise in place, so that its first step is not lost.

    It would have a rate of 0: its completions would be sampled and scored, and teach nothing. Here step s, from 0, has
    (s + 1) / (steps + 1) of the rate.
    """
    scheduler.lr_lambdas = [partial(_risen, factor, steps) for factor in scheduler.lr_lambdas]
    at = scheduler.last_epoch
    for group, base, factor in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = base * factor(at)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def _risen(factor: Any, steps: int, step: int) -> float:
    return (step + 1) / (steps + 1) if step < steps else float(factor(step))
