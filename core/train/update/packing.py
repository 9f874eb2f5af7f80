"""Packs prompts and completions for a forward pass, without padding or repeated prompts.

Theory of operation. The plain layout moves each row to the left: padding stands after all real tokens, so attention
needs no mask and runs its fastest kernel. The packed layout is one row of sequences: a prompt with its completion or,
where completions share a prompt, the prompt without its last token and then a segment for each, the prompt's last token
followed by the completion. A segment sees that prefix and itself; the repeated token predicts the first one of its
completion. Positions are those of the plain row, so RoPE and the log-probabilities are unchanged up to rounding.

Rows of a tree begin alike, too. A sequence begins with the last token that its prompt shares with a row laid out
before, and sees what that row sees up to there. A trained token stands in its own row's sequence and is computed once.

The cheapest layout is found by counting a layer's multiply-adds: 12 H^2 per token for the projections; for attention H
L^2 per sequence of length L, half of which a causal kernel leaves out, or 2 H T (P + T) per segment of T tokens after a
prefix of P; and a fixed amount for each call. Sequences of like length share a call (core/policy/attention.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from grpo.core.policy.blocks import Blocks, Part

IntegerArray = npt.NDArray[np.int64]
IGNORED = -100
MASK_SIZE = 2**28  # entries of the largest attention masks that are made for a batch; `grpo plan` counts them
MASK_STEP = 8  # the width of a mask: CUDA's kernels copy, in every layer, one whose rows are not aligned
# Multiply-adds that take as long as what a call of attention costs besides: about 0.1 ms.
CALL = {"cpu": 2**22, "cuda": 2**33}


@dataclass(frozen=True, slots=True)
class Packed:
    """R rows of length L, on the device of the batch they came from."""

    input_ids: torch.Tensor  # [R, L] int64
    position_ids: torch.Tensor | None  # [R, L] int64, or None: they count from 0 in each row
    # which tokens of the only row see which; None: every token sees what stands before it in its row
    blocks: Blocks | None
    labels: torch.Tensor  # [R, L] int64, the token that each position predicts, -100 where it predicts none
    source: torch.Tensor  # [B, T] int64, where in the flattened [R * L] each completion token was predicted
    present: torch.Tensor  # [B, T] bool, False for padding
    padding: int  # how many of the R * L positions hold no token

    def unpack(self, values: torch.Tensor) -> torch.Tensor:
        """Maps [R, L] per-position values back to [B, T]; padding becomes 0."""
        return values.flatten()[self.source].masked_fill(~self.present, 0.0)


@dataclass(frozen=True, slots=True)
class _Batch:
    prompts: Sequence[tuple[int, ...]]
    completions: IntegerArray
    lengths: Sequence[int]

    def sequence(self, row: int, first: int = 0, host: _Sequence | None = None) -> _Sequence:
        written = self.lengths[row]
        return _Sequence(row, first, len(self.prompts[row]) - first + written, written, host)

    def groups(self) -> dict[tuple[int, ...], list[int]]:
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(self.prompts):
            groups.setdefault(prompt, []).append(row)
        return groups


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    """Tokens of a row of the batch that stand together in the packed row."""

    row: int
    first: int  # how many stand before them in it; they see these besides
    length: int
    written: int  # how many of them, the last ones, are the row's completion; 0: it is a prefix, which predicts nothing
    host: _Sequence | None = None  # the sequence that holds the token before the first one, None where there is none

    def at(self, place: int) -> _Sequence:
        sequence = self
        while place < sequence.first:
            assert sequence.host is not None
            sequence = sequence.host
        return sequence


def pack(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    completion: int,
    hidden: int | None,
    dtype: torch.dtype,
    *,
    trees: bool = False,
) -> Packed | None:
    """Lays a batch out in the cheapest way; returns None for an empty prompt or a gap among the tokens of a completion.

    `input_ids`: [B, P + T] prompts padded on the left, completions on the right. `attention_mask`: [B, P + T], 1 for
    real tokens, observations too. `completion`: T. `hidden`: the model's hidden size H, to weigh attention against
    projections; None: plain rows, which any causal model takes. `trees`: share common beginnings of rows, not only
    equal prompts.
    """
    batch = _read(input_ids, attention_mask, completion)
    if batch is None:
        return None
    device = input_ids.device
    best = None
    if hidden is not None:
        costs = _Costs(hidden, CALL.get(device.type, CALL["cuda"]))
        layouts: list[Iterable[_Sequence]] = [_shared(batch, costs), _alone(batch)]
        if trees:
            layouts.insert(0, _nested(batch, costs))
        row = min((_row(sequences, costs) for sequences in layouts), key=lambda row: row.cost)
        longest = max(len(prompt) + written for prompt, written in zip(batch.prompts, batch.lengths, strict=True))
        plain = costs.tokens(len(batch.prompts) * longest) + costs.call(len(batch.prompts), longest, 0)
        best = row if row.cost < plain else None
    return _plain(batch, device) if best is None else _in_one_row(batch, best, device, dtype)


def _read(input_ids: torch.Tensor, attention_mask: torch.Tensor, completion: int) -> _Batch | None:
    width = input_ids.shape[1] - completion
    mask = attention_mask.bool().cpu().numpy()
    ids = input_ids.cpu().numpy()
    prompts = [tuple(row[keep].tolist()) for row, keep in zip(ids[:, :width], mask[:, :width], strict=True)]
    written = mask[:, width:]
    lengths = written.sum(axis=1)
    if not all(prompts) or (written != (np.arange(completion) < lengths[:, None])).any():
        return None
    return _Batch(prompts, ids[:, width:], lengths.tolist())


@dataclass(frozen=True, slots=True)
class _Costs:
    hidden: int  # H
    fixed: int  # what a call of attention costs, whatever it computes

    def tokens(self, number: int) -> float:
        return 12.0 * self.hidden**2 * number

    def call(self, number: int, length: int, after: int) -> float:
        """Returns the cost of attention for `number` sequences after a prefix, in one call."""
        return self.fixed + number * self.hidden * (2.0 * length * (after + length) if after else length**2)

    def sequences(self, some: Sequence[_Sequence]) -> float:
        calls = {sequence.first: self.fixed for sequence in some}
        each = sum(
            self.tokens(sequence.length) + self.call(1, sequence.length, sequence.first) - self.fixed
            for sequence in some
        )
        return each + sum(calls.values())


@dataclass(frozen=True, slots=True)
class _Row:
    sequences: Sequence[_Sequence]
    parts: Sequence[Sequence[_Sequence]]  # the same, those that one call of attention computes together
    cost: float  # multiply-adds of a layer; infinite where the masks are too large


def _row(some: Iterable[_Sequence], costs: _Costs) -> _Row:
    sequences = list(some)
    parts = list(_parts(sequences, costs))
    calls = sum(costs.call(len(part), max(map(_length, part)), part[0].first) for part in parts)
    masks = {(part[0].first, _width(part)) for part in parts if part[0].first}
    fits = sum((width - after) * width for after, width in masks) <= MASK_SIZE
    return _Row(sequences, parts, costs.tokens(sum(map(_length, sequences))) + calls if fits else math.inf)


def _alone(batch: _Batch) -> Iterator[_Sequence]:
    for members in batch.groups().values():
        yield from map(batch.sequence, members)


def _shared(batch: _Batch, costs: _Costs) -> Iterator[_Sequence]:
    for members in batch.groups().values():
        yield from min(([*map(batch.sequence, members)], _together(batch, members)), key=costs.sequences)


def _nested(batch: _Batch, costs: _Costs) -> Iterator[_Sequence]:
    laid = _Laid(batch)
    for prompt, members in sorted(batch.groups().items(), key=lambda group: len(group[0])):  # the root first
        ways = [[*map(batch.sequence, members)], _together(batch, members)]
        host, first = laid.host(prompt)
        if host is not None:
            ways.append([batch.sequence(member, first, host) for member in members])
            ways.append(_together(batch, members, first, host))
        best = min(ways, key=costs.sequences)
        laid.add(best)
        yield from best


def _together(batch: _Batch, members: Sequence[int], first: int = 0, host: _Sequence | None = None) -> list[_Sequence]:
    last = len(batch.prompts[members[0]]) - 1
    if last == first:
        return [batch.sequence(member, first, host) for member in members]
    prefix = _Sequence(members[0], first, last - first, 0, host)
    return [prefix, *(batch.sequence(member, last, prefix) for member in members)]


class _Laid:
    def __init__(self, batch: _Batch) -> None:
        longest = max(len(prompt) + written for prompt, written in zip(batch.prompts, batch.lengths, strict=True))
        self._ids = np.full((len(batch.prompts), longest), -1)
        for row, (prompt, written) in enumerate(zip(batch.prompts, batch.lengths, strict=True)):
            self._ids[row, : len(prompt)] = prompt
            self._ids[row, len(prompt) : len(prompt) + written] = batch.completions[row, :written]
        self._prompts = batch.prompts
        self._rows: list[_Sequence] = []

    def add(self, sequences: Sequence[_Sequence]) -> None:
        ends = {
            sequence.row: sequence for sequence in sequences
        }  # a prefix comes before its first segment, which is of the same row
        self._rows += ends.values()

    def host(self, prompt: tuple[int, ...]) -> tuple[_Sequence | None, int]:
        """Returns the sequence with the token before the last one in common with a laid row, and its number."""
        if not self._rows:
            return None, 0
        others = self._ids[[row.row for row in self._rows], : len(prompt)]
        apart = np.ones((len(others), len(prompt) + 1), dtype=bool)
        apart[:, : others.shape[1]] = others != np.array(prompt[: others.shape[1]])
        common = apart.argmax(axis=1)
        best = int(common.argmax())
        first = int(common[best]) - 1
        return (self._rows[best].at(first - 1), first) if first > 0 else (None, 0)


def _parts(sequences: Sequence[_Sequence], costs: _Costs) -> Iterator[list[_Sequence]]:
    """Puts sequences that see the same prefix, or none, into calls of attention: those of like length together."""
    same: dict[tuple[_Sequence | None, int], list[_Sequence]] = {}
    for sequence in sequences:
        same.setdefault((sequence.host, sequence.first), []).append(sequence)
    for some in same.values():
        some.sort(key=_length)
        lengths = [len(list(alike)) for _, alike in itertools.groupby(some, key=_length)]
        ends = list(itertools.accumulate(lengths, initial=0))
        # For the sequences up to each end: the least that they cost, and where the last of their calls begins.
        least: list[tuple[float, int]] = [(0.0, 0)]
        for end in ends[1:]:
            longest, after = some[end - 1].length, some[end - 1].first
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


def _length(sequence: _Sequence) -> int:
    return sequence.length


def _width(part: Sequence[_Sequence]) -> int:
    length, after = max(map(_length, part)), part[0].first
    return math.ceil((after + length) / MASK_STEP) * MASK_STEP if after else length


def _plain(batch: _Batch, device: torch.device) -> Packed:
    lengths = [len(prompt) + written for prompt, written in zip(batch.prompts, batch.lengths, strict=True)]
    rows = _Rows(batch, len(lengths), max(lengths))
    for row in range(len(lengths)):
        rows.put(row, 0, batch.sequence(row))
    return rows.packed(device)


def _in_one_row(batch: _Batch, row: _Row, device: torch.device, dtype: torch.dtype) -> Packed:
    ends = list(itertools.accumulate(map(_length, row.sequences)))
    rows = _Rows(batch, 1, ends[-1])
    begins = {sequence: end - sequence.length for sequence, end in zip(row.sequences, ends, strict=True)}
    for sequence in row.sequences:
        rows.put(0, begins[sequence], sequence)
    masks: dict[tuple[int, int], torch.Tensor] = {}
    where, before = np.zeros(ends[-1], dtype=np.int64), 0
    parts: list[Part] = []
    queries: list[IntegerArray] = []
    keys: list[IntegerArray] = []
    for part in row.parts:
        after, width = part[0].first, _width(part)
        columns = np.arange(width - after)
        begin = np.array([begins[sequence] for sequence in part])[:, None]
        own = np.array(list(map(_length, part)))[:, None]
        places = before + np.arange(len(part))[:, None] * len(columns) + columns
        where[(begin + columns)[columns < own]] = places[columns < own]
        before += places.size
        if after:
            if (after, width) not in masks:
                masks[after, width] = _mask(after, width, device, dtype)
            keys += _shared_positions(part[0], begins)
        queries.append((begin + np.minimum(columns, own - 1)).flatten())
        keys.append(queries[-1])
        parts.append(Part(after, len(part), len(columns), masks[after, width] if after else None))
    positions = (np.concatenate(queries), np.concatenate(keys), where)
    return rows.packed(device, Blocks(parts, *(torch.from_numpy(each).to(device) for each in positions)))


def _shared_positions(sequence: _Sequence, begins: Mapping[_Sequence, int]) -> list[IntegerArray]:
    """Returns where in the packed row the tokens stand that a sequence sees besides its own, in order."""
    if sequence.host is None:
        return []
    begin = begins[sequence.host]
    return [
        *_shared_positions(sequence.host, begins),
        np.arange(begin, begin + sequence.first - sequence.host.first),
    ]


def _mask(after: int, width: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Returns a float mask: attention would turn a bool mask into one in every layer, and keep each."""
    return torch.full((width - after, width), -torch.inf, dtype=dtype, device=device).triu_(after + 1)


class _Rows:
    def __init__(self, batch: _Batch, rows: int, length: int) -> None:
        self._batch = batch
        self._ids, self._positions = np.zeros((2, rows, length), dtype=np.int64)
        self._labels = np.full((rows, length), IGNORED, dtype=np.int64)
        self._source = np.zeros(batch.completions.shape, dtype=np.int64)
        self._present = np.zeros(batch.completions.shape, dtype=bool)
        self._tokens = 0

    def put(self, row: int, at: int, sequence: _Sequence) -> None:
        end = at + sequence.length
        begins = end - sequence.written  # of the completion
        prompt = self._batch.prompts[sequence.row][sequence.first : sequence.first + begins - at]
        self._ids[row, at:begins] = prompt
        self._positions[row, at:end] = np.arange(sequence.first, sequence.first + sequence.length)
        self._tokens += sequence.length
        if sequence.written:
            tokens = self._batch.completions[sequence.row, : sequence.written]
            self._ids[row, begins:end] = tokens
            self._labels[row, begins - 1 : end - 1] = tokens
            first = row * self._ids.shape[1] + begins - 1
            self._source[sequence.row, : sequence.written] = np.arange(first, first + sequence.written)
            self._present[sequence.row, : sequence.written] = True

    def packed(self, device: torch.device, blocks: Blocks | None = None) -> Packed:
        return Packed(
            input_ids=torch.from_numpy(self._ids).to(device),
            position_ids=torch.from_numpy(self._positions).to(device) if blocks is not None else None,
            blocks=blocks,
            labels=torch.from_numpy(self._labels).to(device),
            source=torch.from_numpy(self._source).to(device),
            present=torch.from_numpy(self._present).to(device),
            padding=self._ids.size - self._tokens,
        )
