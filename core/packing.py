"""Puts the completions of one prompt into one row, so that a forward pass computes the prompt once and no padding.

In: a padded batch of prompt-and-completion rows. Out: fewer, denser rows with the positions and the attention mask
that make every token see exactly what it saw before, and the way back to [B, T].

Theory of operation. A packed row is the prompt without its last token, then one segment for each completion: the
prompt's last token again, followed by the completion. A segment sees the shared prefix and itself. The repeated token
predicts the first token of its completion, so the shift by one stays inside a segment. Positions are those of the
unpacked row, hence RoPE and the log-probabilities are unchanged up to rounding.

More completions in a row save more prompt tokens but widen the attention mask, whose cost grows with the square of the
row. `pack` weighs both, per layer and in multiply-adds: 12 H^2 per token for the projections (a dense transformer's
usual count) and 2 L^2 H per row for attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

IGNORED = -100
SUPPORTED = frozenset({"llama", "qwen2", "qwen3"})  # families whose packed and plain results the tests compare
ATTENTION = frozenset({"sdpa", "eager"})  # implementations that take a mask of four axes as it is


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed batch of R rows of length L, on the device of the batch it came from.

    Attributes:
        input_ids: [R, L] int64.
        position_ids: [R, L] int64.
        attention_mask: [R, 1, L, L] bool, True where the query (third axis) sees the key (fourth).
        labels: [R, L] int64, the token that each position predicts, -100 where it predicts none.
        source: [B, T] int64, where in the flattened [R * L] each completion token was predicted.
        present: [B, T] bool, False for padding.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor
    source: torch.Tensor
    present: torch.Tensor

    def unpack(self, values: torch.Tensor) -> torch.Tensor:
        """Brings [R, L] per-position values back to [B, T]; padding becomes 0."""
        return values.flatten()[self.source].masked_fill(~self.present, 0.0)


def can_pack(config: Any) -> bool:
    """True for models that attend fully in every layer and take a mask of our making."""
    text = config.get_text_config()
    layers = getattr(text, "layer_types", None) or []
    return (
        text.model_type in SUPPORTED
        and text._attn_implementation in ATTENTION
        and all(layer == "full_attention" for layer in layers)
    )


def pack(input_ids: torch.Tensor, attention_mask: torch.Tensor, completion: int, hidden: int) -> Packed | None:
    """Packs a batch, or returns None where that would not be cheaper.

    Args:
        input_ids: [B, P + T] prompts padded on the left, completions on the right.
        attention_mask: [B, P + T], 1 for real tokens. A completion without any is left out; one with a gap among its
            tokens is not for packing. Observations between turns are real tokens, and only the loss leaves them out.
        completion: T.
        hidden: the model's hidden size H, to weigh attention against projections.
    """
    width = input_ids.shape[1] - completion
    rows, mask = input_ids.tolist(), attention_mask.bool().tolist()
    prompts = [
        tuple(t for t, m in zip(row[:width], keep[:width], strict=True) if m)
        for row, keep in zip(rows, mask, strict=True)
    ]
    lengths = [sum(keep[width:]) for keep in mask]
    if any(not all(keep[width : width + length]) for keep, length in zip(mask, lengths, strict=True)):
        return None
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(prompts):
        groups.setdefault(prompt, []).append(index)
    largest = max(len(members) for members in groups.values())
    if largest == 1 or min(len(prompt) for prompt in groups) == 0:
        return None

    def cost(size: int) -> float:
        bins = _bins(groups, size)
        longest = max(_row_length(prompts, lengths, members) for members in bins)
        return len(bins) * (12.0 * longest * hidden + 2.0 * longest**2)

    sizes = [math.ceil(largest / parts) for parts in (1, 2, 4, 8) if parts < largest]
    size = min(sizes, key=cost)
    plain = len(rows) * (12.0 * len(rows[0]) * hidden + 2.0 * len(rows[0]) ** 2)
    if size < 2 or cost(size) >= plain:
        return None
    return _build(input_ids, prompts, lengths, _bins(groups, size), width)


def _bins(groups: dict[tuple[int, ...], list[int]], size: int) -> list[list[int]]:
    return [members[i : i + size] for members in groups.values() for i in range(0, len(members), size)]


def _row_length(prompts: Sequence[tuple[int, ...]], lengths: Sequence[int], members: Sequence[int]) -> int:
    return len(prompts[members[0]]) - 1 + sum(1 + lengths[index] for index in members)


def _build(
    input_ids: torch.Tensor,
    prompts: Sequence[tuple[int, ...]],
    lengths: Sequence[int],
    bins: Sequence[Sequence[int]],
    width: int,
) -> Packed:
    """Lays the rows out. Segment 0 is the prefix, segments 1, 2, ... are completions, -1 is padding."""
    count, total = input_ids.shape
    longest = max(_row_length(prompts, lengths, members) for members in bins)
    tokens = torch.zeros(len(bins), longest, dtype=torch.long)
    positions = torch.zeros(len(bins), longest, dtype=torch.long)
    segments = torch.full((len(bins), longest), -1, dtype=torch.long)
    labels = torch.full((len(bins), longest), IGNORED, dtype=torch.long)
    source = torch.zeros(count, total - width, dtype=torch.long)
    present = torch.zeros(count, total - width, dtype=torch.bool)
    ids = input_ids.cpu()
    for row, members in enumerate(bins):
        prompt = prompts[members[0]]
        at = len(prompt) - 1
        tokens[row, :at] = torch.tensor(prompt[:-1], dtype=torch.long)
        positions[row, :at] = torch.arange(at)
        segments[row, :at] = 0
        for number, index in enumerate(members, start=1):
            length = lengths[index]
            end = at + 1 + length
            answer = ids[index, width : width + length]
            tokens[row, at] = prompt[-1]
            tokens[row, at + 1 : end] = answer
            positions[row, at:end] = torch.arange(len(prompt) - 1, len(prompt) + length)
            segments[row, at:end] = number
            labels[row, at : end - 1] = answer
            source[index, :length] = row * longest + torch.arange(at, end - 1)
            present[index, :length] = True
            at = end
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()
    same = segments[:, :, None] == segments[:, None, :]
    prefix = (segments == 0)[:, None, :]
    seen = causal & (same | prefix)
    device = input_ids.device
    return Packed(
        input_ids=tokens.to(device),
        position_ids=positions.to(device),
        attention_mask=seen[:, None].to(device),
        labels=labels.to(device),
        source=source.to(device),
        present=present.to(device),
    )
