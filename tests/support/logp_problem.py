"""A head with its hidden states and targets, drawn anew the same way, for all tests of `linear_logp`.

It makes problems of any dtype and option, the gradients of a loss, and says how far two results are apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
N, H, V, RANK = 13, 24, 101, 3
TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-6, torch.bfloat16: 1.2e-2, torch.float16: 2e-3}
LOGP_TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias and a scale": {"bias": True, "logit_scale": 0.25},
    "cold": {"temperature": 0.1},
    "hot": {"temperature": 2.0},
    "softcap": {"softcap": 5.0, "temperature": 0.7},
    "adapter": {"lora": True},
    "everything": {"bias": True, "lora": True, "softcap": 4.0, "temperature": 0.8, "logit_scale": 1.5},
}


@dataclass(frozen=True)
class Problem:
    hidden: torch.Tensor
    weight: torch.Tensor
    target: torch.Tensor
    bias: torch.Tensor | None = None
    lora: tuple[torch.Tensor, torch.Tensor, float] | None = None
    temperature: float = 1.0
    softcap: float | None = None
    logit_scale: float = 1.0

    def parameters(self) -> list[torch.Tensor]:
        return [t for t in (self.hidden, self.weight, self.bias, *(self.lora or ())[:2]) if t is not None]

    def run(self, function: Callable[..., Any], **settings: Any) -> Any:
        return function(
            self.hidden,
            self.weight,
            self.target,
            bias=self.bias,
            lora=self.lora,
            temperature=self.temperature,
            softcap=self.softcap,
            logit_scale=self.logit_scale,
            **settings,
        )


def problem(
    dtype: torch.dtype = torch.float32,
    *,
    trained: bool = True,
    bias: bool = False,
    lora: bool = False,
    shape: tuple[int, int, int] = (N, H, V),
    **settings: Any,
) -> Problem:
    generator = torch.Generator(DEVICE).manual_seed(1)

    def draw(*size: int, grad: bool = trained) -> torch.Tensor:
        values = torch.randn(size, generator=generator, dtype=torch.float64, device=DEVICE).to(dtype)
        return values.requires_grad_(grad)

    count, width, vocabulary = shape
    target = torch.randint(0, vocabulary, (count,), generator=generator, device=DEVICE)
    if count > 4:
        target[0], target[1], target[2:4] = 0, vocabulary - 1, 7 % vocabulary  # first, last, duplicates
    return Problem(
        hidden=draw(count, width, grad=True),
        weight=draw(vocabulary, width),
        target=target,
        bias=draw(vocabulary) if bias else None,
        lora=(draw(RANK, width), draw(vocabulary, RANK), 0.5) if lora else None,
        **settings,
    )


class Expected:
    """Coefficients of the loss of `gradients`, times a factor; counts how often it was asked."""

    def __init__(self, count: int, factor: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(2)
        self.values = torch.randn(2, count, generator=generator, dtype=torch.float64)[0].to(DEVICE) * factor
        self.asked = 0

    def __call__(self, logp: torch.Tensor, rows: slice) -> torch.Tensor:
        assert logp.shape == self.values[rows].shape
        self.asked += 1
        return self.values[rows]


@torch.no_grad()
def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30))


def gradients(of: Problem, logp: torch.Tensor, entropy: torch.Tensor | None) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(2, len(logp), generator=generator, dtype=torch.float64).to(DEVICE)
    loss = (logp * weights[0]).sum()
    if entropy is not None:
        loss = loss + (entropy * weights[1]).sum()
    return list(torch.autograd.grad(loss, [p for p in of.parameters() if p.requires_grad]))
