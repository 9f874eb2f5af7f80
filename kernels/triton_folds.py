"""Implements the passes over a tile of logits in Triton; each pass reads the tile once.

Theory of operation. `fold` runs one program per row. A row that fits a block is read once; a wider one twice, first for
the largest logit, and each thread keeps its own sums until the end, so that no iteration waits for the other warps.
`gradient` is pointwise. Arithmetic is float32. For half-precision inputs the weights of the next matrix product are
written in that dtype, beside the logits, multiplied by `boost`, since float16 could lose small ones; the caller divides
it out of the sums.

A tile is overwritten where its weights have the dtype of the logits. The target's logit is therefore read before any
other, and the largest logit of the row, without which nothing is written, waits for it.

Rows begin at multiples of 16 logits (`tiles.laid_out`) and masks end there, so a thread moves 16 bytes at a time; the
padding is never used. Offsets of rows are 64-bit: a tile can exceed 2^31 bytes. Nothing is specialised on a tile's
width or place, so the last tile of a vocabulary compiles nothing anew. Whether weights are written is a mask and no
variant: a pass without a gradient has to give the bits of the pass with one.

Only operations of Triton's interpreter are used, so that TRITON_INTERPRET=1 runs these kernels on CPU tensors.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl

from grpo.kernels.head import HALF, Head
from grpo.kernels.launch import POINTWISE, fold_launch
from grpo.kernels.sums import TAKEN_OUT, Known, Sums
from grpo.kernels.tiles import laid_out, stride_of

# Of the kernels' arguments: what changes from tile to tile, and vectors that are read at one place only.
_VARYING = ("width", "first")
_VECTORS = (
    "target_ptr", "peak_ptr", "total_ptr", "spread_ptr", "at_target_ptr", "slope_ptr", "shrink_ptr",
    "log_total_ptr", "missed_ptr", "grad_logp_ptr", "entropy_ptr", "grad_entropy_ptr",
)  # fmt: skip

FLOAT16_BOOST = 2048.0  # the largest gradient entry, about 13 nats, stays below float16's 65504


def boost(head: Head) -> float:
    """Returns what the returned tiles are multiplied by."""
    return FLOAT16_BOOST if head.dtype == torch.float16 else 1.0


def fold(
    y: torch.Tensor, target: torch.Tensor, first: int, sums: Sums, head: Head, *, entropy: bool, weights: bool
) -> torch.Tensor:
    """Does what `torch_folds.fold` does; the result is in the dtype of the products' inputs."""
    out = _room(y, head) if weights or head.dtype not in HALF else y.view(head.dtype)  # its dtype alone counts then
    count, width = y.shape
    launch = fold_launch(width)
    if count:
        with _on_device_of(y):
            _fold_kernel[(count,)](
                y, out, target, sums.peak, sums.total, sums.spread, sums.target, sums.slope, sums.shrink,
                y.stride(0), y.stride(0) if weights else 0, width, first,
                head.softcap or 1.0, 1.0 / head.temperature, boost(head), TAKEN_OUT,
                is_capped=head.softcap is not None, with_entropy=entropy,
                in_one=launch.in_one, block=launch.block, num_warps=launch.warps,
            )  # fmt: skip
    return out if weights else y


def gradient(y: torch.Tensor, first: int, head: Head, known: Known) -> torch.Tensor:
    """Does what `torch_folds.gradient` does; the result is in the dtype of the products' inputs."""
    out = _room(y, head)
    count, width = y.shape
    with_entropy = known.entropy is not None and known.grad_entropy is not None
    if count:
        with _on_device_of(y):
            _gradient_kernel[(count, triton.cdiv(width, POINTWISE.block))](
                y, out, known.target, known.log_total, known.missed, known.grad_logp.contiguous(),
                known.entropy if with_entropy else known.missed,
                known.grad_entropy.contiguous() if known.grad_entropy is not None else known.missed,
                y.stride(0), width, first, head.softcap or 1.0, 1.0 / head.temperature, boost(head),
                is_capped=head.softcap is not None, with_entropy=with_entropy,
                block=POINTWISE.block, num_warps=POINTWISE.warps,
            )  # fmt: skip
    return out


def _on_device_of(y: torch.Tensor) -> AbstractContextManager[None]:
    """Makes the tile's device the current one, on which Triton launches whatever its arguments are on."""
    return torch.cuda.device(y.device) if y.is_cuda else nullcontext()


def _room(y: torch.Tensor, head: Head) -> torch.Tensor:
    """Returns a tile in the inputs' dtype with the row stride of the logits, or the logits themselves."""
    if head.dtype not in HALF:
        return y
    count, width = y.shape
    return laid_out(torch.empty(count * stride_of(width), dtype=head.dtype, device=y.device), count, width)


@triton.jit  # type: ignore[untyped-decorator]
def _capped(y, softcap, inv_t, is_capped: tl.constexpr):  # type: ignore[no-untyped-def]
    """The logits z: softcap * tanh(y / softcap) / T, or y."""
    z = y
    if is_capped:
        z = (2.0 * tl.sigmoid(y * (2.0 / softcap)) - 1.0) * (softcap * inv_t)
    return z


@triton.jit
def _slope(z, softcap, inv_t):  # type: ignore[no-untyped-def]
    """1 - tanh(y / softcap)^2 from z, so that no thread keeps more than z; 0 where the target was taken out."""
    t = tl.minimum(tl.abs(z * (1.0 / (softcap * inv_t))), 1.0)
    return 1.0 - t * t


@triton.jit(do_not_specialize=_VARYING, do_not_specialize_on_alignment=_VECTORS)  # type: ignore[untyped-decorator]
def _fold_kernel(  # type: ignore[no-untyped-def]
    y_ptr, out_ptr, target_ptr, peak_ptr, total_ptr, spread_ptr, at_target_ptr, slope_ptr, shrink_ptr,
    stride, written, width, first, softcap, inv_t, boost, taken_out,
    is_capped: tl.constexpr, with_entropy: tl.constexpr, in_one: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    y_ptr += row * stride
    out_ptr += row * stride
    column = tl.load(target_ptr + row) - first
    if (column >= 0) & (column < width):
        z = _capped(tl.load(y_ptr + column), softcap, inv_t, is_capped)
        tl.store(at_target_ptr + row, z)
        if is_capped:
            tl.store(slope_ptr + row, _slope(z, softcap, inv_t))
    old_peak = tl.load(peak_ptr + row)
    old_total = tl.load(total_ptr + row)
    offsets = tl.arange(0, block)
    if in_one:
        z = _rest(y_ptr, offsets, stride, width, column, softcap, inv_t, taken_out, is_capped)
        peak = tl.maximum(old_peak, tl.max(z, axis=0))
        e = tl.exp(z - peak)
        total = tl.sum(e, axis=0)
        spread = tl.sum(e * (z - peak), axis=0)
        _write(out_ptr, offsets, e, z, written, softcap, inv_t, boost, is_capped)
    else:
        peaks = tl.full([block], taken_out, tl.float32)
        for start in range(0, width, block):
            z = _rest(y_ptr, start + offsets, stride, width, column, softcap, inv_t, taken_out, is_capped)
            peaks = tl.maximum(peaks, z)
        peak = tl.maximum(old_peak, tl.max(peaks, axis=0))
        totals = tl.zeros([block], tl.float32)
        spreads = tl.zeros([block], tl.float32)
        for start in range(0, width, block):
            z = _rest(y_ptr, start + offsets, stride, width, column, softcap, inv_t, taken_out, is_capped)
            e = tl.exp(z - peak)
            totals += e
            spreads += e * (z - peak)
            _write(out_ptr, start + offsets, e, z, written, softcap, inv_t, boost, is_capped)
        total = tl.sum(totals, axis=0)
        spread = tl.sum(spreads, axis=0)
    fallen = old_peak - peak
    shrink = tl.exp(fallen)
    tl.store(peak_ptr + row, peak)
    tl.store(total_ptr + row, old_total * shrink + total)
    tl.store(shrink_ptr + row, shrink)
    if with_entropy:
        old_spread = tl.load(spread_ptr + row)
        tl.store(spread_ptr + row, (old_spread + old_total * fallen) * shrink + spread)


@triton.jit  # type: ignore[untyped-decorator]
def _rest(  # type: ignore[no-untyped-def]
    y_ptr, offsets, stride, width, column, softcap, inv_t, taken_out, is_capped: tl.constexpr,
):  # fmt: skip
    y = tl.load(y_ptr + offsets, mask=offsets < stride, other=0.0)
    y = tl.where(offsets < width, y, 0.0)
    z = _capped(y, softcap, inv_t, is_capped)
    return tl.where((offsets < width) & (offsets != column), z, taken_out)


@triton.jit  # type: ignore[untyped-decorator]
def _write(  # type: ignore[no-untyped-def]
    out_ptr, offsets, e, z, written, softcap, inv_t, boost, is_capped: tl.constexpr,
):  # fmt: skip
    if is_capped:
        e = e * _slope(z, softcap, inv_t)
    tl.store(out_ptr + offsets, (e * boost).to(out_ptr.dtype.element_ty), mask=offsets < written)


@triton.jit(do_not_specialize=_VARYING, do_not_specialize_on_alignment=_VECTORS)  # type: ignore[untyped-decorator]
def _gradient_kernel(  # type: ignore[no-untyped-def]
    y_ptr, out_ptr, target_ptr, log_total_ptr, missed_ptr, grad_logp_ptr, entropy_ptr, grad_entropy_ptr,
    stride, width, first, softcap, inv_t, boost,
    is_capped: tl.constexpr, with_entropy: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * block + tl.arange(0, block)
    column = tl.load(target_ptr + row) - first
    grad_logp = tl.load(grad_logp_ptr + row)
    y = tl.load(y_ptr + row * stride + offsets, mask=offsets < stride, other=0.0)
    y = tl.where(offsets < width, y, 0.0)
    z = _capped(y, softcap, inv_t, is_capped)
    log_p = z - tl.load(log_total_ptr + row)
    p = tl.exp(log_p)
    dz = tl.where(offsets == column, tl.load(missed_ptr + row), -p) * grad_logp
    if with_entropy:
        dz -= tl.load(grad_entropy_ptr + row) * p * (log_p + tl.load(entropy_ptr + row))
    if is_capped:
        dz = dz * _slope(z, softcap, inv_t)
    dz = (dz * boost).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride + offsets, dz, mask=offsets < stride)
