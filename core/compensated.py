"""AdamW for weights of 16 bits that keeps what they round away: gradients in, updated weights out.

Theory of operation. A bfloat16 number has 8 significant bits, so a weight w only changes when it is moved by more than
about |w| / 512. At a learning rate of 1e-6 that is next to no weight: full fine-tuning would run, and learn nothing.
So each weight has a second number of its dtype, the rest that rounding left out. An update is computed in float32 from
their sum, then split into both again (Kahan's summation; arXiv 2010.06192): 16 significant bits for two bytes more.

The update is AdamW's (arXiv 1711.05101, algorithm 2), with moments in the dtype of the weights, as torch keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

HALF = (torch.bfloat16, torch.float16)
STATES = 3  # tensors of the size of the weights: two moments and the rest


class CompensatedAdamW(torch.optim.Optimizer):
    """AdamW whose weights add up updates that are smaller than their rounding.

    Args:
        params: as of any optimizer of torch; floating point, on any device.
        lr: the learning rate.
        betas: decay of the mean gradient and of the mean squared one.
        eps: added to the root of the latter.
        weight_decay: decoupled, per unit of the learning rate.
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
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)
        return loss

    def _update(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        state, rate, (decay, decay_square) = self.state[weight], group["lr"], group["betas"]
        for name in ("exp_avg", "exp_avg_sq", "rest"):
            if name not in state:
                state[name] = torch.zeros_like(weight)
        state["step"] = state.get("step", 0) + 1
        gradient = _exact(weight.grad)
        mean = _exact(state["exp_avg"]).lerp_(gradient, 1 - decay)
        square = _exact(state["exp_avg_sq"]).mul_(decay_square).addcmul_(gradient, gradient, value=1 - decay_square)
        state["exp_avg"].copy_(mean)
        state["exp_avg_sq"].copy_(square)
        root = square.div_(1 - decay_square ** state["step"]).sqrt_().add_(group["eps"])
        exact = _exact(weight).add_(state["rest"]).mul_(1 - rate * group["weight_decay"])
        exact.addcdiv_(mean, root, value=-rate / (1 - decay ** state["step"]))
        weight.copy_(exact)
        state["rest"].copy_(exact.sub_(weight))


def _exact(tensor: Any) -> torch.Tensor:
    """Returns a copy in float32."""
    copied: torch.Tensor = tensor.to(torch.float32, copy=True)
    return copied


def compensated_for(model: Any, args: Any) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """Returns the optimizer class and arguments for a model whose trained weights have 16 bits; None for any other.

    Args:
        model: the policy.
        args: of transformers' trainer. DeepSpeed holds exact weights of its own, and None is returned.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if args.deepspeed or not any(parameter.dtype in HALF for parameter in trained):
        return None
    return CompensatedAdamW, {
        "lr": args.learning_rate,
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
    }
