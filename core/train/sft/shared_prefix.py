"""Finds the prefix that all rows of a supervised batch share and removes it from the batch.

Demonstrations of one environment begin alike: the system message and the tools, often most of the tokens. They are
computed once, with their gradient, and every row attends to their keys and values. The loss is that of the whole rows,
up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from grpo.core.policy.blocks import can_pack
from grpo.core.policy.cache_names import cache_argument, output_cache
from grpo.core.train.update.packing import IGNORED

LEAST = 16  # tokens; below, a second forward pass costs more than it saves


def without_prefix(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Computes what all rows begin with, and returns what is left to compute.

    Args:
        inputs: of the model: `input_ids`, `labels` and `attention_mask`, [B, L] each, padded on the right.

    Returns:
        The inputs as they are, where the rows share too little or the model does not attend fully in every layer; else
        `input_ids` and `labels` [B, L - P], with the cache of the first P tokens.
    """
    ids, labels = inputs["input_ids"], inputs["labels"]
    shared = common_length(ids, labels)
    if len(ids) < 2 or shared < LEAST or not can_pack(model.config):
        return dict(inputs)
    cache = output_cache(model(input_ids=ids[:1, :shared], use_cache=True, logits_to_keep=1))
    cache.batch_repeat_interleave(len(ids))
    left = {name: inputs[name][:, shared:].contiguous() for name in ("input_ids", "labels")}
    return {**inputs, **left, cache_argument(model): cache}


def common_length(ids: torch.Tensor, labels: torch.Tensor) -> int:
    """Returns how many tokens all rows begin with, without the one that predicts the first label.

    Args:
        ids: [B, L] int64, padded on the right.
        labels: [B, L] int64, -100 where nothing is to be learned.
    """
    alike = (ids == ids[:1]).all(dim=0) & (labels == IGNORED).all(dim=0)
    return max(int(alike.cumprod(dim=0).sum()) - 1, 0)
