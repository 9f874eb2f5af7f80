"""Attention of one new token: its queries and all keys and values in, what it attends to out.

Several heads of queries share one head of keys and values in most models. Where a mask is needed, transformers copies
keys and values once for each of these heads, at every token and in every layer. A single new token needs no copy: the
queries that share a head become rows of one small product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "grpo_grouped"


@contextmanager
def grouped(model: Any) -> Iterator[None]:
    """Lets a model that attends with torch's own kernels do so without copies, while this lasts."""
    config = model.config
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    if config._attn_implementation != "sdpa" or not plain._supports_attention_backend:
        yield
        return
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attends with queries [B, heads, N, D], keys and values [B, shared heads, W, D]; returns [B, N, heads, D]."""
    rows, heads, new, size = query.shape
    shared = key.shape[1]
    per_head = attention_mask is not None and attention_mask.shape[1] != 1
    if new != 1 or heads == shared or per_head or options.get("position_bias") is not None:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return found
    attended = scaled_dot_product_attention(
        query.view(rows, shared, heads // shared, size), key, value, attention_mask, scale=options.get("scaling")
    )
    return attended.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
