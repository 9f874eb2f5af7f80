"""Computes log-probabilities with a trained head and, in the same pass, all gradients of a loss of known coefficients.

Theory of operation. Most losses of GRPO give a token a coefficient dL/dlogp_i that follows from its log-probability
alone. A tile of some rows and the whole vocabulary is projected once. With final sums, e_j = exp(z_j - m), 0 at the
target, and x_i = (1 - p_t) / sum of e, it gives

    u_i = gain (1 - p_t) w_t - gain x_i e W        dW = sum_i of dL/dlogp_i gain ((1 - p_t) 1[j = t] - x_i e_j) h_i

and the like for a bias and an adapter: three matrix products per row instead of four. dL/dh_i = (dL/dlogp_i) u_i is
right for any loss (kernels/jacobian.py). The backward pass compares the coefficients with those that come back and
multiplies a common factor (a loss scale) in. Where they differ otherwise, it computes the head's gradients anew
(kernels/recompute.py): a wrong coefficient costs time and changes no number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from grpo.kernels import backend
from grpo.kernels.head import HALF, Head, product
from grpo.kernels.jacobian import jacobian_rows, times
from grpo.kernels.recompute import Gathered, Gradient, gradients
from grpo.kernels.sums import Known, Sums
from grpo.kernels.tiles import Tile, spans

Coefficients = Callable[[torch.Tensor, slice], torch.Tensor]
WORKSPACE = 160 * 2**20  # bytes of logits; fewer rows read and write dW more often
AGREE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of the largest coefficient


def is_worthwhile(head: Head, hidden: torch.Tensor, trained: bool) -> bool:
    """Returns whether the mode is faster: not on a GPU, where dW is read and written for each small tile."""
    return trained and hidden.requires_grad and not hidden.is_cuda and head.weight.dtype not in HALF


class Fused(torch.autograd.Function):
    """hidden, weight, bias, A, B → log-probabilities [N], and entropies [N] without a gradient of their own."""

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
        entropy: bool,
        coefficients: Coefficients,
        gathered: Gathered,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        ctx.set_materialize_grads(False)
        rows = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
        given = torch.zeros(len(hidden), dtype=head.exact, device=hidden.device)
        sums = Sums.empty(len(hidden), hidden, head.exact)
        vocabulary, width = weight.shape
        room = max(1, min(len(hidden), WORKSPACE // (vocabulary * head.exact.itemsize)))
        whole = Tile(room, vocabulary)
        buffer = head.buffer(hidden, room, vocabulary)
        mixed = torch.empty(room, width, dtype=head.exact, device=hidden.device)
        gradients = _HeadGradients(head, ctx.needs_input_grad[1:5])
        for first, last in spans(len(hidden), room):
            part, own = sums.part(first, last), target[first:last]
            u = mixed[: last - first]
            e, b = jacobian_rows(hidden[first:last], head, own, part, whole, entropy, buffer, u)
            rows[first:last] = u
            given[first:last] = coefficients(part.logp(), slice(first, last))
            gradients.add(hidden[first:last], own, part, e, b, given[first:last])
        ctx.save_for_backward(
            hidden, weight, bias, lora_a, lora_b, target, sums.log_total(), sums.missed(), given, rows
        )
        ctx.settings, ctx.gradients = (head, tile, gathered), gradients.all()
        entropies = sums.entropy() if entropy else None
        if entropies is not None:
            ctx.mark_non_differentiable(entropies)
        return sums.logp(), entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp: Gradient, _: Any) -> Any:
        hidden, weight, bias, lora_a, lora_b, target, log_total, missed, given, rows = ctx.saved_tensors
        head, tile, gathered = ctx.settings
        if grad_logp is None:
            return (None,) * 11
        d_hidden = times(rows, grad_logp)
        factor = _common_factor(grad_logp, given)
        grads, ctx.gradients = ctx.gradients, None  # the parameters' own now; a second backward pass makes others
        if factor is not None and grads is not None:
            grads = tuple(gradient.mul_(factor) if gradient is not None else None for gradient in grads)
        else:
            with gathered():
                head = head.holding(weight, bias, lora_a, lora_b)
                known = Known(target, log_total, missed, None, grad_logp, None)
                wanted = (False, *ctx.needs_input_grad[1:5])
                grads = gradients(hidden, head, known, tile, wanted=wanted)[1:]
        return d_hidden, *grads, None, None, None, None, None, None


class _HeadGradients:
    def __init__(self, head: Head, wanted: tuple[bool, ...]) -> None:
        def room(tensor: torch.Tensor | None, want: bool) -> Gradient:
            return torch.zeros_like(tensor, dtype=head.exact) if tensor is not None and want else None

        self._head = head
        self._parameters = (head.weight, head.bias, head.lora_a, head.lora_b)
        self.weight, self.bias, self.lora_a, self.lora_b = map(room, self._parameters, wanted)

    def add(
        self,
        hidden: torch.Tensor,
        target: torch.Tensor,
        sums: Sums,
        e: torch.Tensor,
        b: Gradient,
        coefficients: torch.Tensor,
    ) -> None:
        """Adds rows. `hidden`: [n, H]. `target`: [n]. `e`: [n, V] from the fold. `b`: [n, r], by h A^T, or None."""
        head = self._head
        boost = backend.of(hidden, head).boost(head)
        own = coefficients * sums.missed() * sums.slope * head.gain
        rest = coefficients * (sums.peak - sums.log_total()).exp() * (-head.gain / boost)
        inputs = hidden.to(head.dtype)
        exact = inputs.to(head.exact)
        if self.weight is not None:
            size = float(rest.abs().max().clamp(min=1e-30)) if e.dtype in HALF else 1.0  # float16 has a small range
            product(self.weight, e.t(), (exact * (rest / size)[:, None]).to(e.dtype), scale=size, add=True)
            self.weight.index_add_(0, target, exact * own[:, None])
        if self.bias is not None:
            self.bias.addmv_(e.t().to(head.exact), rest).index_add_(0, target, own)
        adapted = head.adapted(inputs)
        if self.lora_b is not None and adapted is not None:
            adapted.mul_(head.lora_scale)
            self.lora_b.addmm_(e.t().to(head.exact), adapted * rest[:, None])
            self.lora_b.index_add_(0, target, adapted * own[:, None])
        if self.lora_a is not None and b is not None:
            self.lora_a.addmm_((b * coefficients[:, None]).t(), exact, alpha=head.lora_scale)

    def all(self) -> tuple[Gradient, ...]:
        gradients = (self.weight, self.bias, self.lora_a, self.lora_b)
        pairs = zip(gradients, self._parameters, strict=True)
        return tuple(
            gradient.to(of.dtype) if gradient is not None and of is not None else None for gradient, of in pairs
        )


def _common_factor(grad: torch.Tensor, given: torch.Tensor) -> float | None:
    size = torch.dot(given, given)
    factor = torch.dot(grad, given) / size.clamp(min=torch.finfo(size.dtype).tiny)
    apart = (grad - factor * given).abs().max() if len(grad) else size
    largest = grad.abs().max() if len(grad) else size
    return float(factor) if apart <= AGREE[given.dtype] * largest else None
