"""Defines which tokens of a packed row attend to which.

Rows are laid out in core/train/update/packing.py and attended to in core/policy/attention.py. A part is some sequences
of like length, which see themselves and, where they have one, the prefix that they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

ATTENTION = "grpo"  # what takes them, by its name among the attentions of transformers
SUPPORTED = frozenset({"llama", "qwen2", "qwen3"})  # families whose packed and plain results the tests compare


class Part(NamedTuple):
    """Sequences of a row that one call computes."""

    after: int  # P, the tokens of the prefix that all of them see; may be 0
    number: int  # n, how many they are
    length: int  # T, of their own tokens
    # [T, P + T] of the dtype of the queries, 0 where a token sees another, else minus infinity; None where P is 0, as
    # each token sees what stands before it
    mask: torch.Tensor | None


class Blocks:
    """How the tokens of a row [1, L] see each other.

    No dataclass: what wraps a model would look for tensors in one, and cast them. `queries`: int64 positions in the
    row, n T for each part; a shorter sequence repeats its last one. `keys`: int64 positions: for each part P of its
    prefix, and then those of its queries. `where`: [L] int64, the place of each position of the row among `queries`.
    """

    __slots__ = ("keys", "parts", "queries", "where")

    def __init__(self, parts: Sequence[Part], queries: torch.Tensor, keys: torch.Tensor, where: torch.Tensor) -> None:
        self.parts = parts
        self.queries = queries
        self.keys = keys
        self.where = where


def no_mask(device: torch.device) -> torch.Tensor:
    """Returns the mask of a forward pass with blocks: of one of four axes, or transformers would make one."""
    return torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)


def takes_prompts(config: Any) -> bool:
    """Returns whether a model's attention, as it is set now, knows `attention_blocks` and `attention_prompts`."""
    return can_pack(config) and config.get_text_config()._attn_implementation == ATTENTION


def can_pack(config: Any) -> bool:
    """Returns whether a model attends fully in every layer, and with an attention that takes blocks of tokens."""
    text = config.get_text_config()
    layers = getattr(text, "layer_types", None) or []
    return (
        text.model_type in SUPPORTED
        and text._attn_implementation in ("sdpa", ATTENTION)
        and all(layer == "full_attention" for layer in layers)
    )
