"""Computes log-probabilities with a trained head, forward and backward, with logits in tiles both times.

Theory of operation. Forward is one product per tile and keeps three numbers per row. Backward projects each tile again,
turns it into dL/dz in place and takes from it

    dH += dz W        dW = dz^T h        db = sum dz        dB = s dz^T (h A^T)        dA = s (dz B)^T h,

each only when wanted. The vocabulary is the outer loop, so dW is finished tile by tile and nothing of the size [V, H]
is held beside the gradient. Logits that fit the workspace are kept, which saves the second projection.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from grpo.kernels import backend
from grpo.kernels.head import Head, product
from grpo.kernels.sums import Known, Sums
from grpo.kernels.tiles import Tile, laid_out, spans

Gathered = Callable[[], AbstractContextManager[Any]]
Gradient = torch.Tensor | None
KEPT_BYTES = 32 * 2**20  # logits of at most this size are kept from the forward pass


def scan(
    hidden: torch.Tensor, head: Head, target: torch.Tensor, tile: Tile, *, entropy: bool, keep: bool = False
) -> tuple[Sums, torch.Tensor | None]:
    """Computes the sums of every row in one product per tile, and returns the logits [N, V] too if `keep`."""
    sums = Sums.empty(len(hidden), hidden, head.exact)
    vocabulary = len(head.weight)
    columns = vocabulary if keep else tile.columns
    kept = torch.empty(len(hidden), vocabulary, dtype=head.exact, device=hidden.device) if keep else None
    buffer = head.buffer(hidden, min(tile.rows, len(hidden)), min(columns, vocabulary))
    folds = backend.of(hidden, head)
    for top, bottom in spans(len(hidden), tile.rows):
        part, own = sums.part(top, bottom), target[top:bottom]
        inputs = hidden[top:bottom].to(head.dtype)
        adapted = head.adapted(inputs)
        for first, last in spans(vocabulary, columns):
            y = head.logits(inputs, adapted, first, last, buffer)
            if kept is not None:
                kept[top:bottom] = y
            folds.fold(y, own, first, part, head, entropy=entropy, weights=False)
    return sums, kept


class Recompute(torch.autograd.Function):
    """hidden, weight, bias, A, B → log-probabilities [N] and entropies [N], differentiable in all of them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        lora_a: torch.Tensor | None,
        lora_b: torch.Tensor | None,
        head: Head,
        target: torch.Tensor,
        tile: Tile,
        entropy: str,
        gathered: Gathered,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        ctx.set_materialize_grads(False)
        keep = len(hidden) * len(weight) * head.exact.itemsize <= KEPT_BYTES
        sums, kept = scan(hidden, head, target, tile, entropy=entropy != "none", keep=keep)
        entropies = sums.entropy() if entropy != "none" else None
        if entropy == "value":
            ctx.mark_non_differentiable(entropies)
        differentiable = entropies if entropy == "grad" else None
        ctx.save_for_backward(
            hidden, weight, bias, lora_a, lora_b, target, sums.log_total(), sums.missed(), differentiable, kept
        )
        ctx.settings = (head, tile, gathered)
        return sums.logp(), entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp: Gradient, grad_entropy: Gradient) -> Any:
        hidden, weight, bias, lora_a, lora_b, target, log_total, missed, entropy, kept = ctx.saved_tensors
        head, tile, gathered = ctx.settings
        if entropy is None:
            grad_entropy = None
        if grad_logp is None and grad_entropy is None:
            return (None,) * 10
        if grad_logp is None:
            grad_logp = torch.zeros_like(log_total)
        with gathered():
            head = head.holding(weight, bias, lora_a, lora_b)
            known = Known(target, log_total, missed, entropy, grad_logp, grad_entropy, kept)
            grads = gradients(hidden, head, known, tile, wanted=tuple(ctx.needs_input_grad[:5]))
        return *grads, None, None, None, None, None


def gradients(
    hidden: torch.Tensor, head: Head, known: Known, tile: Tile, wanted: tuple[bool, ...]
) -> tuple[Gradient, Gradient, Gradient, Gradient, Gradient]:
    """Returns the gradients of hidden, weight, bias, A and B; None for those that are not wanted."""
    exact, device = head.exact, hidden.device
    want_hidden, want_weight, want_bias, want_a, want_b = wanted
    count, (vocabulary, width) = len(hidden), head.weight.shape
    columns = vocabulary if known.kept is not None else min(tile.columns, vocabulary)
    inputs = hidden.to(head.dtype)
    adapted = head.adapted(inputs)
    rank = adapted.shape[1] if adapted is not None else 0
    folds = backend.of(hidden, head)
    size, known = _normalised(known, folds.boost(head))
    gain = size * head.gain / folds.boost(head)

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=exact, device=device)

    d_hidden = zeros(count, width) if want_hidden else None
    d_weight = torch.empty_like(head.weight) if want_weight else None
    d_bias = torch.empty_like(head.bias) if want_bias and head.bias is not None else None
    d_b = torch.empty_like(head.lora_b) if want_b and head.lora_b is not None else None
    through_b = zeros(count, rank) if rank and (want_hidden or want_a) else None
    buffer = head.buffer(hidden, min(tile.rows, count), columns)
    weight_sums = zeros(columns, width) if want_weight else None
    for first, last in spans(vocabulary, columns):
        rows_w = head.rows(first, last) if want_hidden else None
        rows_b = head.lora_b[first:last].to(exact) if head.lora_b is not None else None
        sums_w = weight_sums[: last - first] if weight_sums is not None else None
        sums_bias, sums_b = zeros(last - first), zeros(last - first, rank)
        for top, bottom in spans(count, tile.rows):
            if known.kept is not None:
                y = laid_out(buffer, bottom - top, columns).copy_(known.kept[top:bottom])
            else:
                own = adapted[top:bottom] if adapted is not None else None
                y = head.logits(inputs[top:bottom], own, first, last, buffer)
            dz = folds.gradient(y, first, head, known.part(top, bottom))
            if d_hidden is not None and rows_w is not None:
                product(d_hidden[top:bottom], dz, rows_w, add=first > 0)
            if sums_w is not None:
                product(sums_w, dz.t(), inputs[top:bottom], add=top > 0)
            if d_bias is not None:
                sums_bias += dz.sum(dim=0, dtype=exact)
            if through_b is not None and rows_b is not None:
                through_b[top:bottom].addmm_(dz.to(exact), rows_b)
            if d_b is not None and adapted is not None:
                sums_b.addmm_(dz.t().to(exact), adapted[top:bottom])
        if d_weight is not None and sums_w is not None:
            d_weight[first:last] = sums_w.mul_(gain)
        if d_bias is not None:
            d_bias[first:last] = sums_bias * gain
        if d_b is not None:
            d_b[first:last] = sums_b * (gain * head.lora_scale)
    d_a = None
    if d_hidden is not None:
        d_hidden *= gain
    if through_b is not None and head.lora_a is not None:
        through_b *= gain * head.lora_scale
        if d_hidden is not None:
            d_hidden.addmm_(through_b, head.lora_a.to(exact))
        if want_a:
            d_a = (through_b.t() @ inputs.to(exact)).to(head.lora_a.dtype)
    return (d_hidden.to(hidden.dtype) if d_hidden is not None else None), d_weight, d_bias, d_a, d_b


def _normalised(known: Known, boost: float) -> tuple[torch.Tensor | float, Known]:
    """Divides the gradients by their largest where tiles are float16, whose range they could exceed."""
    if boost == 1.0 or len(known.target) == 0:
        return 1.0, known
    size = known.grad_logp.abs().max()
    if known.grad_entropy is not None:
        size = torch.maximum(size, known.grad_entropy.abs().max())
    size = size.clamp(min=torch.finfo(size.dtype).tiny)
    grad_entropy = known.grad_entropy / size if known.grad_entropy is not None else None
    return size, known._replace(grad_logp=known.grad_logp / size, grad_entropy=grad_entropy)
