"""Chooses the next token of every row: logits and sampling parameters in, tokens and their log-probabilities out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from grpo.core.rollout.types import SamplingParams


def choose(logits: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Chooses a token per row of [B, V] logits; returns ids [B] and their log-probabilities [B] float32."""
    logits = logits.float()
    if params.temperature == 0:
        chosen = logits.argmax(dim=-1)
        return chosen, _gather(logits.log_softmax(dim=-1), chosen)
    scaled = (logits / params.temperature).log_softmax(dim=-1)
    probabilities = _filtered(scaled, params).exp()
    chosen = torch.multinomial(probabilities, num_samples=1)[:, 0]
    return chosen, _gather(scaled, chosen)


def _gather(logprobs: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return logprobs.gather(-1, chosen[:, None])[:, 0]


def _filtered(logprobs: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Applies top-k, top-p and min-p with the processors of transformers; without filters, returns its argument."""
    if params.top_k == 0 and params.top_p == 1.0 and params.min_p == 0.0:
        return logprobs
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    ids = torch.empty((len(logprobs), 0), dtype=torch.long, device=logprobs.device)
    if params.top_k:
        logprobs = TopKLogitsWarper(params.top_k)(ids, logprobs)
    if params.top_p < 1.0:
        logprobs = TopPLogitsWarper(params.top_p)(ids, logprobs)
    if params.min_p > 0.0:
        logprobs = MinPLogitsWarper(params.min_p)(ids, logprobs)
    return logprobs.log_softmax(dim=-1)
