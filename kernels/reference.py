"""Computes the plain reference that every kernel is tested against: all logits at once, O(N V) memory, in float64."""

from __future__ import annotations

import torch


def naive_logp(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    lora: tuple[torch.Tensor, torch.Tensor, float] | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes log-probabilities [N] and entropies [N] in nats as `linear_logp`, differentiably, all in `dtype`."""
    hidden, weight = hidden.to(dtype), weight.to(dtype)
    logits = hidden @ weight.t()
    if lora is not None:
        a, b, scale = lora
        logits = logits + scale * (hidden @ a.to(dtype).t()) @ b.to(dtype).t()
    if bias is not None:
        logits = logits + bias.to(dtype)
    logits = logits * logit_scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logps = torch.log_softmax(logits / temperature, dim=-1)
    entropy = -(logps.exp() * logps).sum(dim=-1)
    return logps.gather(-1, target[:, None])[:, 0], entropy
