"""Computes attention with torch's kernels where transformers would copy or compute more than needed.

- A row that holds many sequences: a mask would hide most of the row from each token, and attention compute it
  nevertheless. `Blocks` says which tokens see which, and the row is split into calls that compute little else. A model
  takes them as `attention_blocks`, after `attend_in_blocks`.
- One new token: where several heads of queries share one of keys and values and a mask is needed, transformers copies
  keys and values for each head. Here the queries that share a head become rows of one small product. `PromptKeys`
  holds a shared prompt's keys and values once; a model takes them as `attention_prompts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from grpo.core.policy.blocks import ATTENTION, Blocks, Part
from grpo.core.policy.modules import without_adapter
from grpo.core.policy.prompt_keys import PromptKeys


def attend_in_blocks(config: Any) -> None:
    """Lets a model of this configuration, which attends by "sdpa", take `attention_blocks` from now on."""
    config.get_text_config()._attn_implementation = ATTENTION


def attend_without_plans() -> None:
    """Keeps this process from attention by cuDNN, which torch prefers on Hopper and Blackwell.

    It plans each new number of sequences and keys, up to half a second, and never frees the plans.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


@contextmanager
def without_copies(model: Any) -> Iterator[None]:
    """Lets a model that attends by "sdpa" read keys and values without copies, while this lasts."""
    config = model.config
    if config._attn_implementation != "sdpa" or not without_adapter(model)._supports_attention_backend:
        yield
        return
    config._attn_implementation = ATTENTION
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
    attention_blocks: Blocks | None = None,
    attention_prompts: PromptKeys | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attends with queries [B, heads, L, D], keys and values [B, shared heads, W, D]; returns [B, L, heads, D]."""
    if attention_blocks is not None:
        return _in_blocks(module, query, key, value, attention_blocks, **options), None
    if attention_prompts is not None:
        layer: Any = module.layer_idx
        return attention_prompts.attend(layer, query, key, value, options.get("scaling")), None
    per_head = attention_mask is not None and attention_mask.shape[1] != 1
    if query.shape[2] == 1 and query.shape[1] != key.shape[1] and not per_head and options.get("position_bias") is None:
        return _one_token(query, key, value, attention_mask, options.get("scaling")), None
    whole: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return whole


def _one_token(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scaling: float | None
) -> torch.Tensor:
    """Returns [B, 1, heads, D] of queries [B, heads, 1, D]."""
    rows, heads, _, size = query.shape
    shared = key.shape[1]
    attended = scaled_dot_product_attention(
        query.view(rows, shared, heads // shared, size), key, value, mask, scale=scaling
    )
    return attended.reshape(rows, 1, heads, value.shape[-1])


def _in_blocks(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    blocks: Blocks,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> torch.Tensor:
    """Returns [1, L, heads, D] of a row."""
    kind = query.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
    own = [part.number * part.length for part in blocks.parts]
    lengths = [part.after + size for part, size in zip(blocks.parts, own, strict=True)]

    def gathered(tensor: torch.Tensor, places: torch.Tensor, sizes: list[int]) -> Sequence[torch.Tensor]:
        """[size, heads, D] for each part: gathered at once, or each would have a gradient for the whole row."""
        return torch.split(tensor[0].transpose(0, 1).to(dtype).index_select(0, places.to(tensor.device)), sizes)

    outputs = [
        _part(module, part, *tensors, dropout=dropout, scaling=scaling)
        for part, *tensors in zip(
            blocks.parts,
            gathered(query, blocks.queries, own),
            gathered(key, blocks.keys, lengths),
            gathered(value, blocks.keys, lengths),
            strict=True,
        )
    ]
    return torch.cat(outputs).index_select(0, blocks.where.to(query.device))[None]


def _part(
    module: torch.nn.Module,
    part: Part,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    dropout: float,
    scaling: float | None,
) -> torch.Tensor:
    """Returns [n T, heads, D] of queries [n T, heads, D], keys and values [P + n T, shared heads, D]."""
    number, length = part.number, part.length

    def own(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(number, length, *tensor.shape[1:]).transpose(1, 2)

    if part.mask is None:
        alone: torch.Tensor = sdpa_attention_forward(
            module, own(query), own(key), own(value), None, dropout=dropout, scaling=scaling, is_causal=True
        )[0]
        return alone.flatten(0, 1)
    heads, shared = query.shape[1], key.shape[1]

    def visible(tensor: torch.Tensor) -> torch.Tensor:
        """Returns [n shared, heads / shared, P + T, D]: the query heads that share one read it without a copy."""
        prefix = tensor[: part.after].transpose(0, 1).expand(number, -1, -1, -1)
        both = torch.cat([prefix, own(tensor[part.after :])], dim=2)
        return both.flatten(0, 1)[:, None].expand(-1, heads // shared, -1, -1)

    attended = scaled_dot_product_attention(
        own(query).reshape(number * shared, heads // shared, length, -1),
        visible(key),
        visible(value),
        part.mask.to(query.device, query.dtype),
        dropout_p=dropout,
        scale=scaling,
    )
    return attended.reshape(number, heads, length, -1).transpose(1, 2).flatten(0, 1)


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
