"""Chooses the next token of every row from its logits, and returns its log-probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

if TYPE_CHECKING:
    from grpo.core.rollout.types import SamplingParams


BLOCK = 256  # tokens of the vocabulary that are added up together


def choose(logits: torch.Tensor, params: SamplingParams, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Chooses a token per row.

    `logits`: [B, V]. `uniforms`: [B] float64, random numbers in [0, 1). Returns ids [B] and their log-probabilities [B]
    float32.
    """
    logits = logits.float()
    if params.temperature == 0:
        chosen = logits.argmax(dim=-1)
        return chosen, _gather(logits.log_softmax(dim=-1), chosen)
    scaled = (logits if params.temperature == 1.0 else logits / params.temperature).log_softmax(dim=-1)
    probabilities = _filtered(scaled, params).exp()
    chosen = _drawn(probabilities, uniforms)
    return chosen, _gather(scaled, chosen)


def _drawn(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Inverts the cumulative distribution of each row, by blocks and then inside of one, in float64.

    `probabilities`: [B, V] float32. `uniforms`: [B] float64.
    """
    missing = -probabilities.shape[1] % BLOCK
    whole = pad(probabilities, (0, missing)) if missing else probabilities
    blocks = whole.view(len(probabilities), -1, BLOCK)
    ends = blocks.sum(dim=-1).double().cumsum(dim=-1)
    block, target = _place(ends, uniforms * ends[:, -1])
    inside = blocks[torch.arange(len(blocks), device=blocks.device), block].double().cumsum(dim=-1)
    before = torch.where(block > 0, ends.gather(1, (block - 1).clamp(min=0)[:, None])[:, 0], 0.0)
    place, _ = _place(inside, target - before)
    return block * BLOCK + place


def _place(ends: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the first place whose end is above the target, and the target, which is kept below the last end."""
    below = torch.nextafter(ends[:, -1], ends.new_zeros(()))
    target = torch.minimum(target, below).clamp(min=0.0)
    return (ends <= target[:, None]).sum(dim=-1), target


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
