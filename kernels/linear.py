"""Computes a linear layer with or without an adapter, with every gradient.

    y = x W^T + b + s (x A^T) B^T

Theory of operation. The product of rank r of a LoRA adapter (arXiv 2106.09685) is added to the layer's in the same
call, so nothing of full width is made beside y or dL/dx:

    dL/dx = g W + (s g B) A        dL/dB = s g^T (x A^T)        dL/dA = (s g B)^T x

On a CPU, large float32 products take oneDNN, which is faster on an AMD EPYC than torch's MKL (`python
benchmarks/layers.py`) but has a cost per call and per new shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

LEAST = 2**18  # entries of a weight matrix that gains
FEWEST_ROWS = 16  # that one is multiplied by
Gradient = torch.Tensor | None


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Returns x W^T + b for `x` [..., in], `weight` [out, in] and `bias` [out] or None, of one dtype."""
    output: torch.Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return output.view(*x.shape[:-1], len(weight))


def adapted_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    lora_a: torch.Tensor,
    lora_b: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Returns x W^T + b + s (x A^T) B^T, s = `scale`; `lora_a`, `lora_b`: [r, in], [out, r]; others as `linear`."""
    output: torch.Tensor = _Adapted.apply(x.reshape(-1, x.shape[-1]), weight, bias, lora_a, lora_b, scale)  # type: ignore[no-untyped-call]
    return output.view(*x.shape[:-1], len(weight))


class _Linear(torch.autograd.Function):
    """x [N, in], weight, bias → [N, out]."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight.t(), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Gradient, ...]:
        x, weight = ctx.saved_tensors
        return _own_gradients(ctx, gradient, x, weight)


class _Adapted(torch.autograd.Function):
    """x [N, in], weight, bias, A, B, s → [N, out]."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        lora_a: torch.Tensor,
        lora_b: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        low = x @ lora_a.t()
        ctx.save_for_backward(x, weight, lora_a, lora_b, low)
        ctx.scale = scale
        return _product(x, weight.t(), bias).addmm_(low, lora_b.t(), alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Gradient, ...]:
        x, weight, lora_a, lora_b, low = ctx.saved_tensors
        d_x, d_weight, d_bias = _own_gradients(ctx, gradient, x, weight)
        d_a = d_b = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[3]:
            d_low = (gradient @ lora_b).mul_(ctx.scale)
            if d_x is not None:
                d_x.addmm_(d_low, lora_a)
            if ctx.needs_input_grad[3]:
                d_a = d_low.t() @ x
        if ctx.needs_input_grad[4]:
            d_b = (low.t() @ gradient).mul_(ctx.scale).t()  # the narrow factor first, which is faster
        return d_x, d_weight, d_bias, d_a, d_b, None


def _own_gradients(ctx: Any, gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[Gradient, ...]:
    d_x = _product(gradient, weight) if ctx.needs_input_grad[0] else None
    d_weight = gradient.t() @ x if ctx.needs_input_grad[1] else None
    d_bias = gradient.sum(dim=0) if ctx.needs_input_grad[2] else None
    return d_x, d_weight, d_bias


def _product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    if gains(left, right):
        return times(left, right, bias)
    return left @ right if bias is None else torch.addmm(bias, left, right)


def gains(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Returns whether `times` is faster than torch for left [N, K] @ right [K, M]."""
    return (
        left.dtype == torch.float32
        and right.dtype == torch.float32
        and left.device.type == "cpu"
        and right.device.type == "cpu"
        and right.numel() >= LEAST
        and len(left) >= FEWEST_ROWS
        and torch._C._has_mkldnn
        and bool(torch.backends.mkldnn.enabled)
    )


def times(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Returns left [N, K] @ right [K, M], plus bias [M], by oneDNN where `gains` says so; without a gradient."""
    output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")
    return output
