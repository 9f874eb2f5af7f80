"""Computes log-probabilities with a frozen head and, in the same pass, their derivative by the hidden states.

Theory of operation. For any loss L of log-probabilities, dL/dh_i = (dL/dlogp_i) u_i with the row

    u_i = dlogp_i / dh_i = gain (1 - p_t) (w_t - sum_{j != t} q_j w_j),    q = softmax of z without the target.

One pass over the vocabulary keeps both terms: two matrix products per tile, y = h W^T and exp(z - m) W. The backward
pass multiplies each row by one number and needs neither logits nor weight (which a sharded model would have to gather
again). With a softcap w_j is weighted by its derivative at z_j; with an adapter w_j + s A^T b_j replaces w_j.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from grpo.kernels import backend
from grpo.kernels.head import Head, product
from grpo.kernels.sums import Sums
from grpo.kernels.tiles import Tile, spans


class JacobianRows(torch.autograd.Function):
    """hidden [N, H] → log-probabilities [N] and entropies [N] without a gradient of their own."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, head: Head, target: torch.Tensor, tile: Tile, entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        ctx.set_materialize_grads(False)
        rows = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
        sums = Sums.empty(len(hidden), hidden, head.exact)
        vocabulary, width = head.weight.shape
        buffer = head.buffer(hidden, min(tile.rows, len(hidden)), min(tile.columns, vocabulary))
        mixed = torch.empty(min(tile.rows, len(hidden)), width, dtype=head.exact, device=hidden.device)
        for first, last in spans(len(hidden), tile.rows):
            part = sums.part(first, last)
            jacobian_rows(
                hidden[first:last], head, target[first:last], part, tile, entropy, buffer, mixed[: last - first]
            )
            rows[first:last] = mixed[: last - first]
        ctx.save_for_backward(rows)
        entropies = sums.entropy() if entropy else None
        if entropies is not None:
            ctx.mark_non_differentiable(entropies)
        return sums.logp(), entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp: torch.Tensor | None, _: Any) -> Any:
        (rows,) = ctx.saved_tensors
        if grad_logp is None:
            return None, None, None, None, None
        return times(rows, grad_logp), None, None, None, None


def times(rows: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Multiplies rows [N, H] by one number each, [N] in the dtype of sums; a GPU holds no rows in that dtype for it."""
    return torch.mul(rows, factors[:, None], out=torch.empty_like(rows))


def jacobian_rows(
    hidden: torch.Tensor,
    head: Head,
    target: torch.Tensor,
    sums: Sums,
    tile: Tile,
    entropy: bool,
    buffer: torch.Tensor,
    mixed: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Fills the sums of these rows and writes u [n, H] into `mixed`, in the dtype of sums.

    Returns the last tile of exp(z - m), and the derivative by h A^T, [n, r], or None without an adapter.
    """
    hidden = hidden.to(head.dtype)
    folds = backend.of(hidden, head)
    adapted = head.adapted(hidden)
    adapted_grad = torch.zeros_like(adapted) if adapted is not None else None  # the weighted sum of rows of B
    for first, last in spans(len(head.weight), tile.columns):
        y = head.logits(hidden, adapted, first, last, buffer)
        e = folds.fold(y, target, first, sums, head, entropy=entropy, weights=True)
        if first:
            mixed.mul_(sums.shrink[:, None])
        product(mixed, e, head.rows(first, last), add=first > 0)
        if adapted_grad is not None and head.lora_b is not None:
            adapted_grad.mul_(sums.shrink[:, None]).addmm_(
                e.to(adapted_grad.dtype), head.lora_b[first:last].to(adapted_grad.dtype)
            )
    steep = (sums.missed() * head.gain)[:, None]
    total = sums.total.clamp(min=torch.finfo(sums.total.dtype).tiny)[:, None] * folds.boost(head)
    own = head.weight[target].to(mixed.dtype)
    torch.addcmul(own.mul_(sums.slope[:, None]), mixed, 1 / total, value=-1.0, out=mixed)
    if adapted_grad is not None and head.lora_a is not None and head.lora_b is not None:
        b = head.lora_b[target].to(adapted_grad.dtype).mul_(sums.slope[:, None]).sub_(adapted_grad / total)
        mixed.addmm_(b, head.lora_a.to(mixed.dtype), alpha=head.lora_scale)
        adapted_grad = b.mul_(steep)
    mixed.mul_(steep)
    return e, adapted_grad
