"""The passes over a tile of logits in Triton: the same functions as torch_folds, one reading of the tile each.

Theory of operation. `fold` runs one program per row. A first sweep finds the row's largest logit and picks up the
target, a second writes exp(z - m) and sums; the row's part of the tile is small enough to come from the cache the
second time. `gradient` is pointwise and runs a grid of rows and blocks. Arithmetic is float32 whatever the tile is
stored in. For half-precision inputs the weights that the next matrix product reads are written in that dtype, beside
the logits; float16 could lose small ones, so they are multiplied by `boost`, which the caller divides out of the sums.

Only operations that Triton's interpreter knows are used (no libdevice, no autotuning, no bfloat16 arithmetic), so that
TRITON_INTERPRET=1 runs these kernels on CPU tensors.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from grpo.kernels.head import HALF, Head
from grpo.kernels.sums import TAKEN_OUT, Sums

BLOCK = 4096
FLOAT16_BOOST = 2048.0  # the largest gradient entry, about 13 nats, stays below float16's 65504


def boost(head: Head) -> float:
    """What the returned tiles are multiplied by."""
    return FLOAT16_BOOST if head.dtype == torch.float16 else 1.0


def fold(
    y: torch.Tensor, target: torch.Tensor, first: int, sums: Sums, head: Head, *, entropy: bool, weights: bool
) -> torch.Tensor:
    """As `torch_folds.fold`; the result is in the dtype of the products' inputs."""
    out = _room(y, head) if weights else y
    count, width = y.shape
    if count:
        _fold_kernel[(count,)](
            y, out, target, sums.peak, sums.total, sums.spread, sums.target, sums.slope, sums.shrink,
            width, first, head.softcap or 1.0, 1.0 / head.temperature, boost(head), TAKEN_OUT,
            is_capped=head.softcap is not None, with_entropy=entropy, with_weights=weights, block=_block(width),
        )  # fmt: skip
    return out


def gradient(
    y: torch.Tensor,
    first: int,
    head: Head,
    target: torch.Tensor,
    log_total: torch.Tensor,
    missed: torch.Tensor,
    entropy: torch.Tensor | None,
    grad_logp: torch.Tensor,
    grad_entropy: torch.Tensor | None,
) -> torch.Tensor:
    """As `torch_folds.gradient`; the result is in the dtype of the products' inputs."""
    out = _room(y, head)
    count, width = y.shape
    block = _block(width)
    differentiable = entropy is not None and grad_entropy is not None
    if count:
        _gradient_kernel[(count, triton.cdiv(width, block))](
            y, out, target, log_total, missed, grad_logp.contiguous(),
            entropy if differentiable else missed, grad_entropy.contiguous() if grad_entropy is not None else missed,
            width, first, head.softcap or 1.0, 1.0 / head.temperature, boost(head),
            is_capped=head.softcap is not None, with_entropy=differentiable, block=block,
        )  # fmt: skip
    return out


def _room(y: torch.Tensor, head: Head) -> torch.Tensor:
    return torch.empty(y.shape, dtype=head.dtype, device=y.device) if head.dtype in HALF else y


def _block(width: int) -> int:
    return min(BLOCK, int(triton.next_power_of_2(width)))


@triton.jit  # type: ignore[untyped-decorator]
def _capped(y, softcap, inv_t, is_capped: tl.constexpr):  # type: ignore[no-untyped-def]
    """The logits z, and tanh(y / softcap)."""
    if is_capped:
        t = 2.0 * tl.sigmoid(2.0 * y / softcap) - 1.0
        z = t * (softcap * inv_t)
    else:
        t = y
        z = y
    return z, t


@triton.jit  # type: ignore[untyped-decorator]
def _fold_kernel(  # type: ignore[no-untyped-def]
    y_ptr, out_ptr, target_ptr, peak_ptr, total_ptr, spread_ptr, at_target_ptr, slope_ptr, shrink_ptr,
    width, first, softcap, inv_t, boost, taken_out,
    is_capped: tl.constexpr, with_entropy: tl.constexpr, with_weights: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.load(target_ptr + row) - first
    old_peak = tl.load(peak_ptr + row)
    peak = old_peak
    for start in range(0, width, block):
        offsets = start + tl.arange(0, block)
        y = tl.load(y_ptr + row * width + offsets, mask=offsets < width, other=0.0)
        z, t = _capped(y, softcap, inv_t, is_capped)
        z = tl.where((offsets < width) & (offsets != column), z, taken_out)
        peak = tl.maximum(peak, tl.max(z, axis=0))
    if (column >= 0) & (column < width):
        y = tl.load(y_ptr + row * width + column)
        z, t = _capped(y, softcap, inv_t, is_capped)
        tl.store(at_target_ptr + row, z)
        if is_capped:
            tl.store(slope_ptr + row, 1.0 - t * t)
    shrink = tl.exp(old_peak - peak)
    total = tl.load(total_ptr + row)
    spread = (tl.load(spread_ptr + row) + total * (old_peak - peak)) * shrink
    total = total * shrink
    for start in range(0, width, block):
        offsets = start + tl.arange(0, block)
        y = tl.load(y_ptr + row * width + offsets, mask=offsets < width, other=0.0)
        z, t = _capped(y, softcap, inv_t, is_capped)
        z = tl.where((offsets < width) & (offsets != column), z, taken_out) - peak
        e = tl.exp(z)
        total += tl.sum(e, axis=0)
        if with_entropy:
            spread += tl.sum(e * z, axis=0)
        if with_weights:
            if is_capped:
                e = e * (1.0 - t * t)
            e = (e * boost).to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + row * width + offsets, e, mask=offsets < width)
    tl.store(peak_ptr + row, peak)
    tl.store(total_ptr + row, total)
    tl.store(spread_ptr + row, spread)
    tl.store(shrink_ptr + row, shrink)


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_kernel(  # type: ignore[no-untyped-def]
    y_ptr, out_ptr, target_ptr, log_total_ptr, missed_ptr, grad_logp_ptr, entropy_ptr, grad_entropy_ptr,
    width, first, softcap, inv_t, boost,
    is_capped: tl.constexpr, with_entropy: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * block + tl.arange(0, block)
    column = tl.load(target_ptr + row) - first
    grad_logp = tl.load(grad_logp_ptr + row)
    y = tl.load(y_ptr + row * width + offsets, mask=offsets < width, other=0.0)
    z, t = _capped(y, softcap, inv_t, is_capped)
    log_p = z - tl.load(log_total_ptr + row)
    p = tl.exp(log_p)
    dz = tl.where(offsets == column, tl.load(missed_ptr + row), -p) * grad_logp
    if with_entropy:
        dz -= tl.load(grad_entropy_ptr + row) * p * (log_p + tl.load(entropy_ptr + row))
    if is_capped:
        dz = dz * (1.0 - t * t)
    tl.store(out_ptr + row * width + offsets, (dz * boost).to(out_ptr.dtype.element_ty), mask=offsets < width)
