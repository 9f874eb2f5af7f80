"""Computes tiles of logits and products with the rows of the output layer.

    y = logit_scale * (h W^T + b + s (h A^T) B^T)        z = softcap * tanh(y / softcap) / T, or y / T

An adapter (LoRA, arXiv 2106.09685) is never merged into W: in half precision its change would be rounded away. Products
accumulate in float32 (float64 for float64 inputs).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from grpo.kernels.tiles import laid_out, stride_of

HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Head:
    """Parameters of an output layer."""

    weight: torch.Tensor  # [V, H]
    bias: torch.Tensor | None  # [V] or None
    # lora_a, lora_b: [r, H] and [V, r], or None without an adapter
    lora_a: torch.Tensor | None
    lora_b: torch.Tensor | None
    lora_scale: float  # s
    temperature: float  # T
    softcap: float | None  # bound of the logits, or None
    logit_scale: float  # factor of the logits before the bound
    dtype: torch.dtype  # of the products' inputs

    @property
    def gain(self) -> float:
        """dz / d(h W^T) where the softcap is flat."""
        return self.logit_scale / self.temperature

    @property
    def scale(self) -> float:
        """What the projection is multiplied by; with a softcap the temperature comes after it."""
        return self.gain if self.softcap is None else self.logit_scale

    @property
    def exact(self) -> torch.dtype:
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    def holding(
        self, weight: torch.Tensor, bias: torch.Tensor | None, lora_a: torch.Tensor | None, lora_b: torch.Tensor | None
    ) -> Head:
        return replace(self, weight=weight, bias=bias, lora_a=lora_a, lora_b=lora_b)

    def buffer(self, like: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        """Returns an uninitialised buffer for a tile of at most this many rows and columns of logits."""
        return torch.empty(rows * stride_of(columns), dtype=self.exact, device=like.device)

    def rows(self, first: int, last: int) -> torch.Tensor:
        """Returns W[first:last] in the dtype of the products."""
        return self.weight[first:last].to(self.dtype)

    def adapted(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """Returns h A^T, [n, r] in the dtype of sums, or None without an adapter."""
        if self.lora_a is None:
            return None
        out = torch.empty(len(hidden), len(self.lora_a), dtype=self.exact, device=hidden.device)
        return product(out, hidden, self.lora_a.to(self.dtype).t())

    def logits(
        self, hidden: torch.Tensor, adapted: torch.Tensor | None, first: int, last: int, out: torch.Tensor
    ) -> torch.Tensor:
        """Writes y of the entries first..last-1 into `out`, from `buffer`. `hidden`: [n, H]. `adapted`: [n, r]."""
        y = laid_out(out, len(hidden), last - first)
        product(y, hidden, self.rows(first, last).t(), scale=self.scale)
        if self.lora_b is not None and adapted is not None:
            b = self.lora_b[first:last].to(self.exact)
            y.addmm_(adapted, b.t(), alpha=self.scale * self.lora_scale)
        if self.bias is not None:
            y.add_(self.bias[first:last].to(self.exact).clamp(min=-1e30), alpha=self.scale)
        return y


def product(
    out: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, scale: float = 1.0, add: bool = False
) -> torch.Tensor:
    """Returns out = scale * left @ right, plus out when `add`; accumulates in the dtype of `out`."""
    beta = 1.0 if add else 0.0
    if left.dtype in HALF and left.is_cuda:
        # One library product of half-precision inputs whose result is never rounded to half precision.
        return torch.addmm(out, left, right, out_dtype=out.dtype, beta=beta, alpha=scale, out=out)
    return torch.addmm(out, left.to(out.dtype), right.to(out.dtype), beta=beta, alpha=scale, out=out)
