"""Computes log-probabilities of tokens straight from hidden states, with only a tile of the logits [N, V] at a time.

| mode | for | products of N H V multiply-adds | kept for backward |
|---|---|---|---|
| | no gradient | 1 | nothing |
| jacobian | a frozen head | 2 | one row of H per token |
| fused | a trainable head and known coefficients | 3 with dW, 2 for an adapter | one row of H per token, dW |
| recompute | a trainable head, a differentiable entropy | 3, with dW 4 | two numbers per token |
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal

import torch

from grpo.kernels.fused import Coefficients, Fused, is_worthwhile
from grpo.kernels.head import Head
from grpo.kernels.jacobian import JacobianRows
from grpo.kernels.recompute import Gathered, Recompute, scan
from grpo.kernels.tiles import Tile, default_tile

Entropy = Literal["none", "value", "grad"]
Mode = Literal["auto", "jacobian", "fused", "recompute"]
Lora = tuple[torch.Tensor, torch.Tensor, float]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def linear_logp(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    lora: Lora | None = None,
    entropy: Entropy = "none",
    mode: Mode = "auto",
    tile: Tile | None = None,
    coefficients: Coefficients | None = None,
    gathered: Gathered = nullcontext,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Computes log-probabilities of tokens, and entropies, under a linear output layer.

        y = logit_scale * (h W^T + bias + s (h A^T) B^T),   z = softcap * tanh(y / softcap) / T   (or y / T),
        logp_i = log softmax(z_i)[target_i],                entropy_i = -sum_j p_ij log p_ij

    Under autocast the products take their inputs in its dtype, like `torch.nn.functional.linear`; what is summed stays
    float32. `torch.compile` leaves this function out of its graph.

    Args:
        hidden: [N, H] float32, bfloat16, float16 or float64.
        weight: [V, H] on the same device.
        target: [N] int64, from 0 to V - 1; elsewhere on a GPU, its own assertion fails, so that nothing waits for it.
        bias: [V].
        temperature: T, above 0.
        softcap: bound of the logits (Gemma 2), above 0.
        logit_scale: factor of the logits (Cohere, Granite).
        lora: A [r, H], B [V, r] and their factor s, an adapter beside the weight. Dropout is not applied.
        entropy: also return entropies, without or with a gradient.
        mode: "jacobian" for a frozen head and entropies without a gradient, "fused" for known coefficients, "recompute"
            for everything; "auto" chooses.
        tile: how much of the logits to hold at a time.
        coefficients: given log-probabilities [n] of the rows in a slice, returns what dL/dlogp will be for them, [n],
            up to a factor common to all rows; None: that is not known. Where it proves wrong, gradients take longer.
        gathered: gives a context in which sharded head parameters are whole, entered in both passes (ZeRO-3).

    Returns:
        Log-probabilities [N] and entropies [N] in nats (None with entropy="none"); float32, float64 for float64 inputs.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit, or a mode that cannot give the gradients that are wanted.
    """
    _check(hidden, target, temperature, softcap)
    trained = [t for t in (weight, bias, *(lora[:2] if lora else ())) if t is not None and t.requires_grad]
    differentiable = torch.is_grad_enabled() and (hidden.requires_grad or bool(trained))
    jacobian = mode == "jacobian" or (mode == "auto" and not trained and entropy != "grad")
    if jacobian and differentiable and (trained or entropy == "grad"):
        reason = "the head has parameters to train" if trained else "the entropy's gradient is wanted"
        raise ValueError(f"mode='jacobian' cannot be used: {reason}. Use mode='recompute' or 'auto'.")
    if mode == "fused" and (coefficients is None or entropy == "grad"):
        reason = "it needs `coefficients`" if coefficients is None else "the entropy's gradient is wanted"
        raise ValueError(f"mode='fused' cannot be used: {reason}. Use mode='recompute' or 'auto'.")
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    a, b, scale = lora if lora else (None, None, 0.0)
    head = Head(weight, bias, a, b, float(scale), float(temperature), softcap, float(logit_scale), dtype)
    tile = tile or default_tile(hidden.device)
    target = target.contiguous()  # kernels read it as one block
    with torch.autocast(device, enabled=False), gathered():
        _check_head(hidden, head, target)
        if not differentiable:
            with torch.no_grad():
                sums, _ = scan(hidden, head, target, tile, entropy=entropy != "none")
                return sums.logp(), sums.entropy() if entropy != "none" else None
        if jacobian:
            return JacobianRows.apply(hidden, head, target, tile, entropy != "none")  # type: ignore[no-untyped-call, no-any-return]
        fused = mode == "fused" or (mode == "auto" and entropy != "grad" and is_worthwhile(head, hidden, bool(trained)))
        if fused and coefficients is not None:
            arguments = (hidden, weight, bias, a, b, head, target, tile, entropy != "none", coefficients, gathered)
            return Fused.apply(*arguments)  # type: ignore[no-untyped-call, no-any-return]
        return Recompute.apply(hidden, weight, bias, a, b, head, target, tile, entropy, gathered)  # type: ignore[no-untyped-call, no-any-return]


def _check(hidden: torch.Tensor, target: torch.Tensor, temperature: float, softcap: float | None) -> None:
    if hidden.dim() != 2 or target.shape != hidden.shape[:1]:
        raise ValueError(
            f"hidden must be [N, H] and target [N], not {list(hidden.shape)} and {list(target.shape)}. Flatten batch "
            "and length first."
        )
    if not hidden.is_floating_point() or target.dtype != torch.int64:
        raise ValueError(f"hidden must be floating point and target int64, not {hidden.dtype} and {target.dtype}")
    if temperature <= 0:
        raise ValueError(f"temperature {temperature} must be above 0; greedy decoding has nothing to train on")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"softcap {softcap} must be above 0; pass None for a head without one")


def _check_head(hidden: torch.Tensor, head: Head, target: torch.Tensor) -> None:
    weight = head.weight
    if not weight.is_floating_point():
        raise ValueError(
            f"the head's weight is {weight.dtype}: a quantised head has no rows to take sums of. Keep the head in "
            "bfloat16, as transformers does by default."
        )
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[1]:
        raise ValueError(
            f"the head's weight is {list(weight.shape)} and hidden {list(hidden.shape)}: their last axes must agree. A "
            "weight without rows is sharded: pass `gathered`."
        )
    if weight.device != hidden.device:
        raise ValueError(f"hidden is on {hidden.device} and the head on {weight.device}. Move hidden there.")
    if target.device != hidden.device:
        raise ValueError(f"hidden is on {hidden.device} and target on {target.device}. Move target there.")
    words = (
        f"every target must be from 0 to V - 1 = {len(weight) - 1}. Leave out ignored tokens, such as those of -100."
    )
    within = ((target >= 0) & (target < len(weight))).all()
    if target.is_cuda:
        torch._assert_async(within, words)
    elif not within:
        raise ValueError(words)
    if head.bias is not None and head.bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be [V] = [{len(weight)}], not {list(head.bias.shape)}")
    if head.lora_a is not None and head.lora_b is not None:
        rank = len(head.lora_a)
        if head.lora_a.shape != (rank, weight.shape[1]) or head.lora_b.shape != (len(weight), rank):
            raise ValueError(
                f"lora must be A [r, H] and B [V, r], not {list(head.lora_a.shape)} and {list(head.lora_b.shape)}"
            )
