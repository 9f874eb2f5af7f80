"""Lays prompts and completions out for a forward pass: a padded batch in, rows without what need not be computed out.

In: rows of prompt and completion. Out: rows with their positions and attention mask, in which every token sees exactly
what it saw before, and the way back to [B, T].

Theory of operation. The plain layout moves each row to the left. What is padding then stands after all real tokens, a
causal model never looks at it, and no mask is needed: attention runs its fastest kernel. A packed layout puts several
blocks into a row. A block is a prompt without its last token, then one segment for each of some completions: the
prompt's last token again, followed by the completion. A segment sees the prefix of its block and itself. The repeated
token predicts the first token of its completion, so the shift by one stays inside a segment. Positions are those of the
plain row, hence RoPE and the log-probabilities are unchanged up to rounding.

So a prompt is computed once for the completions of its group, and rows of unlike length fill each other's padding. More
in a row saves more, but the mask hides most of it from each token and attention still computes it. `pack` weighs both,
per layer and in multiply-adds: 12 H^2 per token for the projections (a dense transformer's usual count), and for
attention L^2 H per plain row of length L, where a causal kernel leaves out half, or 2 L^2 H per packed row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

IGNORED = -100
SUPPORTED = frozenset({"llama", "qwen2", "qwen3"})  # families whose packed and plain results the tests compare
ATTENTION = frozenset({"sdpa", "eager"})  # implementations that take a mask of four axes as it is
MASK_SIZE = 2**28  # entries of the largest attention mask that is made; `grpo plan` counts it
MASK_STEP = 8  # lengths of masked rows: CUDA's kernels copy, in every layer, a mask whose rows are not aligned
ROOM = (1.0, 1.5, 2.0, 3.0, 4.0)  # row lengths that are tried, in lengths of the longest block

Block = Sequence[int]  # completions, by their number in the batch, of one prompt
Layout = Sequence[Sequence[Block]]  # the blocks of each row


@dataclass(frozen=True, slots=True)
class Packed:
    """R rows of length L, on the device of the batch they came from.

    Attributes:
        input_ids: [R, L] int64.
        position_ids: [R, L] int64, or None: they count from 0 in each row.
        attention_mask: [R, 1, L, L], 0 where the query (third axis) sees the key (fourth), else minus infinity; or
            None: every token sees what stands before it.
        labels: [R, L] int64, the token that each position predicts, -100 where it predicts none.
        source: [B, T] int64, where in the flattened [R * L] each completion token was predicted.
        present: [B, T] bool, False for padding.
        padding: how many of the R * L positions hold no token.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor | None
    attention_mask: torch.Tensor | None
    labels: torch.Tensor
    source: torch.Tensor
    present: torch.Tensor
    padding: int

    def unpack(self, values: torch.Tensor) -> torch.Tensor:
        """Brings [R, L] per-position values back to [B, T]; padding becomes 0."""
        return values.flatten()[self.source].masked_fill(~self.present, 0.0)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What a batch holds: the prompt of each of B rows, the tokens [B, T] of completions and their lengths."""

    prompts: Sequence[tuple[int, ...]]
    completions: torch.Tensor
    lengths: Sequence[int]

    def length(self, block: Block) -> int:
        """Tokens of a block."""
        return len(self.prompts[block[0]]) - 1 + sum(1 + self.lengths[index] for index in block)

    def longest(self, layout: Layout) -> int:
        """Tokens of the longest row."""
        return max(sum(self.length(block) for block in row) for row in layout)


def can_pack(config: Any) -> bool:
    """True for models that attend fully in every layer and take a mask of our making."""
    text = config.get_text_config()
    layers = getattr(text, "layer_types", None) or []
    return (
        text.model_type in SUPPORTED
        and text._attn_implementation in ATTENTION
        and all(layer == "full_attention" for layer in layers)
    )


def pack(
    input_ids: torch.Tensor, attention_mask: torch.Tensor, completion: int, hidden: int | None, dtype: torch.dtype
) -> Packed | None:
    """Lays a batch out in the cheapest way.

    Args:
        input_ids: [B, P + T] prompts padded on the left, completions on the right.
        attention_mask: [B, P + T], 1 for real tokens. Observations between turns are real tokens, and only the loss
            leaves them out.
        completion: T.
        hidden: the model's hidden size H, to weigh attention against projections; None: plain rows, which any causal
            model takes.
        dtype: of the model's queries and keys, for the mask.

    Returns:
        None for what cannot be laid out anew: an empty prompt, or a gap among the tokens of a completion.
    """
    batch = _read(input_ids, attention_mask, completion)
    if batch is None:
        return None
    layout: Layout = [[[index]] for index in range(len(input_ids))]
    if hidden is not None:
        layout = min((layout, *_packed_layouts(batch)), key=lambda one: _cost(batch, one, hidden))
    return _build(batch, layout, input_ids.device, dtype)


def _read(input_ids: torch.Tensor, attention_mask: torch.Tensor, completion: int) -> _Batch | None:
    width = input_ids.shape[1] - completion
    mask = attention_mask.bool().cpu()
    ids = input_ids.cpu()
    prompts = [tuple(row[keep].tolist()) for row, keep in zip(ids[:, :width], mask[:, :width], strict=True)]
    written = mask[:, width:]
    lengths = written.sum(dim=1)
    if not all(prompts) or (written != (torch.arange(completion) < lengths[:, None])).any():
        return None
    return _Batch(prompts, ids[:, width:], lengths.tolist())


def _masked(layout: Layout) -> bool:
    return any(len(row) > 1 or len(row[0]) > 1 for row in layout)


def _length(batch: _Batch, layout: Layout) -> int:
    longest = batch.longest(layout)
    return math.ceil(longest / MASK_STEP) * MASK_STEP if _masked(layout) else longest


def _cost(batch: _Batch, layout: Layout, hidden: int) -> float:
    """Multiply-adds of a layer, divided by H."""
    length = _length(batch, layout)
    if not _masked(layout):
        return len(layout) * (12.0 * length * hidden + length**2)
    if len(layout) * length**2 > MASK_SIZE:
        return math.inf
    return len(layout) * (12.0 * length * hidden + 2.0 * length**2)


def _packed_layouts(batch: _Batch) -> Iterator[Layout]:
    """Ways to pack: how many completions share a prompt at most, and how long a row may be."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(batch.prompts):
        groups.setdefault(prompt, []).append(index)
    largest = max(len(members) for members in groups.values())
    for size in sorted({math.ceil(largest / parts) for parts in (1, 2, 4, 8, largest)}):
        blocks = [members[i : i + size] for members in groups.values() for i in range(0, len(members), size)]
        longest = max(batch.length(block) for block in blocks)
        for factor in ROOM:
            yield _filled(batch, blocks, round(factor * longest))


def _filled(batch: _Batch, blocks: Sequence[Block], room: int) -> Layout:
    """Puts each block, the longest first, into the first row that has room for it."""
    rows: list[list[Block]] = []
    free: list[int] = []
    for block in sorted(blocks, key=batch.length, reverse=True):
        length = batch.length(block)
        at = next((number for number, left in enumerate(free) if left >= length), len(rows))
        if at == len(rows):
            rows.append([])
            free.append(room)
        rows[at].append(block)
        free[at] -= length
    return rows


def _build(batch: _Batch, layout: Layout, device: torch.device, dtype: torch.dtype) -> Packed:
    """Lays the rows out. Every prefix and every segment has a number of its own; padding has -1."""
    masked, length = _masked(layout), _length(batch, layout)
    shape = (len(layout), length)
    tokens, positions = torch.zeros(2, *shape, dtype=torch.long)
    labels = torch.full(shape, IGNORED, dtype=torch.long)
    own, prefix = torch.full((2, *shape), -1, dtype=torch.long)
    source = torch.zeros(batch.completions.shape, dtype=torch.long)
    present = torch.zeros(batch.completions.shape, dtype=torch.bool)
    number = 0
    for row, blocks in enumerate(layout):
        at = 0
        for block in blocks:
            prompt = torch.tensor(batch.prompts[block[0]], dtype=torch.long)
            shared, begin, at = number, at, at + len(prompt) - 1
            tokens[row, begin:at] = prompt[:-1]
            positions[row, begin:at] = torch.arange(at - begin)
            own[row, begin:at] = shared
            for index in block:
                number += 1
                written = batch.lengths[index]
                end = at + 1 + written
                tokens[row, at] = prompt[-1]
                tokens[row, at + 1 : end] = batch.completions[index, :written]
                positions[row, at:end] = torch.arange(len(prompt) - 1, len(prompt) + written)
                own[row, at:end] = number
                labels[row, at : end - 1] = batch.completions[index, :written]
                source[index, :written] = row * length + torch.arange(at, end - 1)
                present[index, :written] = True
                at = end
            prefix[row, begin:at] = shared
            number += 1
    return Packed(
        input_ids=tokens.to(device),
        position_ids=positions.to(device) if masked else None,
        attention_mask=_mask(own.to(device), prefix.to(device), dtype) if masked else None,
        labels=labels.to(device),
        source=source.to(device),
        present=present.to(device),
        padding=int((own < 0).sum()),
    )


def _mask(own: torch.Tensor, prefix: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask of numbers: attention turns one of bools into numbers anew in every layer, and keeps each."""
    keys = own[:, None, :]
    seen = (keys == own[:, :, None]).logical_or_(keys == prefix[:, :, None]).tril_()
    return torch.zeros(seen.shape, dtype=dtype, device=own.device).masked_fill_(~seen, -torch.inf)[:, None]
