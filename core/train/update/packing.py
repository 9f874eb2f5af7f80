"""Packs prompts and completions for a forward pass, without padding or repeated prompts.

In: rows of prompt and completion. Out: rows in which every token sees exactly what it saw before, and the way back to
[B, T].

Theory of operation. The plain layout moves each row to the left. What is padding then stands after all real tokens, a
causal model never looks at it, and no mask is needed: attention runs its fastest kernel. The packed layout puts all
tokens into one row without any padding. It consists of sequences: a prompt and its completion as they are, or, where
completions share a prompt, the prompt without its last token and then a segment for each of them, the prompt's last
token again followed by the completion. A segment sees that prefix and itself. The repeated token predicts the first
token of its completion, so the shift by one stays inside a segment. Positions are those of the plain row, hence RoPE
and the log-probabilities are unchanged up to rounding.

So a prompt is computed once for the completions of its group. Attention computes a row sequence by sequence
(core/policy/attention.py), those of like length together, and so it does not grow with the row. What is cheapest is
found by a count of multiply-adds of a layer: 12 H^2 per token for the projections (a dense transformer's usual count);
for attention H L^2 per sequence of length L, where a causal kernel leaves out half, 2 H T (P + T) per segment of T
tokens after a prefix of P, whose mask leaves out nothing; and a fixed amount for each call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from grpo.core.policy.blocks import Blocks, Part

IGNORED = -100
MASK_SIZE = 2**28  # entries of the largest attention masks that are made for a batch; `grpo plan` counts them
MASK_STEP = 8  # the width of a mask: CUDA's kernels copy, in every layer, one whose rows are not aligned
# Multiply-adds that take as long as what a call of attention costs besides: about 0.1 ms.
CALL = {"cpu": 2**22, "cuda": 2**33}


@dataclass(frozen=True, slots=True)
class Packed:
    """R rows of length L, on the device of the batch they came from.

    Attributes:
        input_ids: [R, L] int64.
        position_ids: [R, L] int64, or None: they count from 0 in each row.
        blocks: which tokens of the only row see which; None: every token sees what stands before it in its row.
        labels: [R, L] int64, the token that each position predicts, -100 where it predicts none.
        source: [B, T] int64, where in the flattened [R * L] each completion token was predicted.
        present: [B, T] bool, False for padding.
        padding: how many of the R * L positions hold no token.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor | None
    blocks: Blocks | None
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


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Tokens that stand together in the packed row.

    Attributes:
        prompt: of which they are tokens.
        first: the first of them.
        completion: the number of the completion that follows, or None: it is a prefix, without the prompt's last token.
        after: the length of the prefix that they see besides.
        length: how many they are.
    """

    prompt: tuple[int, ...]
    first: int
    completion: int | None
    after: int
    length: int


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
        dtype: of the model's queries and keys, for the masks.

    Returns:
        None for what cannot be laid out anew: an empty prompt, or a gap among the tokens of a completion.
    """
    batch = _read(input_ids, attention_mask, completion)
    if batch is None:
        return None
    device = input_ids.device
    best = None
    if hidden is not None:
        costs = _Costs(hidden, CALL.get(device.type, CALL["cuda"]))
        row = min((_row(batch, costs, shares=shares) for shares in (True, False)), key=lambda row: row.cost)
        longest = max(len(prompt) + written for prompt, written in zip(batch.prompts, batch.lengths, strict=True))
        plain = costs.tokens(len(batch.prompts) * longest) + costs.call(len(batch.prompts), longest, 0)
        best = row if row.cost < plain else None
    return _plain(batch, device) if best is None else _in_one_row(batch, best, device, dtype)


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


@dataclass(frozen=True, slots=True)
class _Costs:
    """Multiply-adds of a layer.

    Attributes:
        hidden: H.
        fixed: what a call of attention costs, whatever it computes.
    """

    hidden: int
    fixed: int

    def tokens(self, number: int) -> float:
        """Of all projections, for so many tokens."""
        return 12.0 * self.hidden**2 * number

    def call(self, number: int, length: int, after: int) -> float:
        """Of attention, for so many sequences of this length after a prefix, in one call."""
        return self.fixed + number * self.hidden * (2.0 * length * (after + length) if after else length**2)

    def sequences(self, some: Sequence[_Sequence]) -> float:
        """Of a prompt's sequences, where all of like kind come into one call."""
        calls = {one.after: self.fixed for one in some}
        each = sum(self.tokens(one.length) + self.call(1, one.length, one.after) - self.fixed for one in some)
        return each + sum(calls.values())


@dataclass(frozen=True, slots=True)
class _Row:
    """What the packed row holds.

    Attributes:
        sequences: in their order.
        parts: the same, those that one call of attention computes together.
        cost: multiply-adds of a layer; infinite where the masks are too large.
    """

    sequences: Sequence[_Sequence]
    parts: Sequence[Sequence[_Sequence]]
    cost: float


def _row(batch: _Batch, costs: _Costs, *, shares: bool) -> _Row:
    sequences = list(_sequences(batch, costs, shares=shares))
    parts = list(_parts(sequences, costs))
    calls = sum(costs.call(len(part), max(map(_length, part)), part[0].after) for part in parts)
    masks = {(part[0].after, _width(part)) for part in parts if part[0].after}
    fits = sum((width - after) * width for after, width in masks) <= MASK_SIZE
    return _Row(sequences, parts, costs.tokens(sum(map(_length, sequences))) + calls if fits else math.inf)


def _sequences(batch: _Batch, costs: _Costs, *, shares: bool) -> Iterator[_Sequence]:
    """The sequences of the packed row, in their order; a prompt is shared where it may be and that is cheaper."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(batch.prompts):
        groups.setdefault(prompt, []).append(index)
    for prompt, members in groups.items():
        last = len(prompt) - 1
        alone = [_Sequence(prompt, 0, index, 0, len(prompt) + batch.lengths[index]) for index in members]
        together = [_Sequence(prompt, last, index, last, 1 + batch.lengths[index]) for index in members]
        if last:
            together.insert(0, _Sequence(prompt, 0, None, 0, last))
        yield from together if shares and costs.sequences(together) < costs.sequences(alone) else alone


def _parts(sequences: Sequence[_Sequence], costs: _Costs) -> Iterator[list[_Sequence]]:
    """Puts sequences that see the same prefix, or none, into calls of attention: those of like length together."""
    same: dict[tuple[int, ...], list[_Sequence]] = {}
    for one in sequences:
        same.setdefault(one.prompt if one.after else (), []).append(one)
    for some in same.values():
        some.sort(key=_length)
        lengths = [len(list(alike)) for _, alike in itertools.groupby(some, key=_length)]
        ends = list(itertools.accumulate(lengths, initial=0))
        # For the sequences up to each end: the least that they cost, and where the last of their calls begins.
        least: list[tuple[float, int]] = [(0.0, 0)]
        for end in ends[1:]:
            longest, after = some[end - 1].length, some[end - 1].after
            least.append(
                min(
                    (before + costs.call(end - begin, longest, after), number)
                    for number, ((before, _), begin) in enumerate(zip(least, ends, strict=False))
                )
            )
        number = len(lengths)
        while number:
            begin = least[number][1]
            yield some[ends[begin] : ends[number]]
            number = begin


def _length(one: _Sequence) -> int:
    return one.length


def _width(part: Sequence[_Sequence]) -> int:
    """The keys of a call: with a mask, as many as its rows are aligned for."""
    length, after = max(map(_length, part)), part[0].after
    return math.ceil((after + length) / MASK_STEP) * MASK_STEP if after else length


def _plain(batch: _Batch, device: torch.device) -> Packed:
    """One row for each completion."""
    lengths = [len(prompt) + written for prompt, written in zip(batch.prompts, batch.lengths, strict=True)]
    rows = _Rows(batch, len(lengths), max(lengths))
    for index, prompt in enumerate(batch.prompts):
        rows.put(index, 0, _Sequence(prompt, 0, index, 0, lengths[index]))
    return rows.packed(device)


def _in_one_row(batch: _Batch, row: _Row, device: torch.device, dtype: torch.dtype) -> Packed:
    """All sequences one after the other."""
    ends = list(itertools.accumulate(map(_length, row.sequences)))
    rows = _Rows(batch, 1, ends[-1])
    begins = {id(one): end - one.length for one, end in zip(row.sequences, ends, strict=True)}
    prefixes = {one.prompt: begins[id(one)] for one in row.sequences if one.completion is None}
    for one in row.sequences:
        rows.put(0, begins[id(one)], one)
    masks: dict[tuple[int, int], torch.Tensor] = {}
    where, before = torch.zeros(ends[-1], dtype=torch.long), 0
    parts, queries, keys = [], [], []
    for part in row.parts:
        after, width = part[0].after, _width(part)
        columns = torch.arange(width - after)
        begin = torch.tensor([begins[id(one)] for one in part])[:, None]
        own = torch.tensor(list(map(_length, part)))[:, None]
        places = before + torch.arange(len(part))[:, None] * len(columns) + columns
        where[(begin + columns)[columns < own]] = places[columns < own]
        before += places.numel()
        if after:
            if (after, width) not in masks:
                masks[after, width] = _mask(after, width, device, dtype)
            first = prefixes[part[0].prompt]
            keys.append(torch.arange(first, first + after))
        queries.append((begin + columns.minimum(own - 1)).flatten())
        keys.append(queries[-1])
        parts.append(Part(after, len(part), len(columns), masks[after, width] if after else None))
    return rows.packed(
        device, Blocks(parts, torch.cat(queries).to(device), torch.cat(keys).to(device), where.to(device))
    )


def _mask(after: int, width: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """A mask of numbers: attention turns one of bools into numbers anew in every layer, and keeps each."""
    return torch.full((width - after, width), -torch.inf, dtype=dtype, device=device).triu_(after + 1)


class _Rows:
    """R rows of L positions that sequences are put into."""

    def __init__(self, batch: _Batch, rows: int, length: int) -> None:
        self._batch = batch
        self._ids, self._positions = torch.zeros(2, rows, length, dtype=torch.long)
        self._labels = torch.full((rows, length), IGNORED, dtype=torch.long)
        self._source = torch.zeros(batch.completions.shape, dtype=torch.long)
        self._present = torch.zeros(batch.completions.shape, dtype=torch.bool)
        self._tokens = 0

    def put(self, row: int, at: int, one: _Sequence) -> None:
        """Puts a sequence into a row, from a position on."""
        end = at + one.length
        written = 0 if one.completion is None else self._batch.lengths[one.completion]
        begins = end - written  # of the completion
        self._ids[row, at:begins] = torch.tensor(one.prompt[one.first : one.first + begins - at], dtype=torch.long)
        self._positions[row, at:end] = torch.arange(one.first, one.first + one.length)
        self._tokens += one.length
        if one.completion is not None:
            tokens = self._batch.completions[one.completion, :written]
            self._ids[row, begins:end] = tokens
            self._labels[row, begins - 1 : end - 1] = tokens
            self._source[one.completion, :written] = row * self._ids.shape[1] + torch.arange(begins - 1, end - 1)
            self._present[one.completion, :written] = True

    def packed(self, device: torch.device, blocks: Blocks | None = None) -> Packed:
        """The rows, on a device."""
        return Packed(
            input_ids=self._ids.to(device),
            position_ids=self._positions.to(device) if blocks is not None else None,
            blocks=blocks,
            labels=self._labels.to(device),
            source=self._source.to(device),
            present=self._present.to(device),
            padding=self._ids.numel() - self._tokens,
        )
