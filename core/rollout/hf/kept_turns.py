"""Keeps the keys and values of a generation for the next turn of its rollouts.

Theory of operation. The context of a turn is that of the turn before and a few tokens more, so only these need a
forward pass. A generation hands over the cache of its rows; the next one finds its contexts among them by their tokens,
puts each row's cache together again, without padding and tokens after the row's end, padded on the left, and computes
what is new. Masks and positions make log-probabilities those of a plain forward pass. Weights must not change in
between, so an instance is for one batch of rollouts. Only full attention's caches are kept (no sliding windows or
states).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.policy.modules import cache_argument
from grpo.core.policy.prompt_keys import PromptKeys
from grpo.core.rollout.hf.states import Carried, carried
from grpo.core.rollout.types import PromptIds


@dataclass(frozen=True, slots=True)
class Started:
    carries: Carried  # the cache, [B, ...]; without the slots of prompts where these are held apart
    mask: torch.Tensor  # [B, W], 1 for the slots of the cache, or of prompts that are held apart, that count
    position: torch.Tensor  # [B], of the last token
    logits: torch.Tensor  # [B, V], for the next token
    prompts: PromptKeys | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one cache: keys and values of each layer [N, heads, W, D], and which slots count, [N, W]."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    counts: torch.Tensor


_Taken = tuple[_Part, torch.Tensor, torch.Tensor, torch.Tensor]  # a part, where its rows go, which rows, which slots


class KeptTurns:
    """The cache of a batch of rollouts between two of its turns."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._where: dict[tuple[int, ...], tuple[int, int]] = {}

    def put(
        self, cache: Any, rows: torch.Tensor | slice, counts: torch.Tensor, contexts: Sequence[tuple[int, ...]]
    ) -> None:
        """Takes rows of a cache: [N], copied; or a slice of a cache that nobody uses any more.

        `counts`: [N, W], whether a slot holds a token of the context. `contexts`: the tokens of those slots, for each
        row.
        """
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        from grpo.core.rollout.hf.kv_cache import PreallocatedLayer

        if type(cache) is not DynamicCache or any(
            type(layer) not in (DynamicLayer, PreallocatedLayer) for layer in cache.layers
        ):
            return
        layers: Any = cache.layers
        self._where.update({context: (len(self._parts), row) for row, context in enumerate(contexts)})
        self._parts.append(_Part([(layer.keys[rows], layer.values[rows]) for layer in layers], counts.bool()))

    def start(
        self, model: Any, prompts: PromptIds, pad_id: int, prefill: Callable[[Sequence[Sequence[int]]], Started]
    ) -> Started | None:
        """Continues what was kept, which is then forgotten; None where nothing was. `model`: with the same weights."""
        parts, where = self._parts, self._where
        self._parts, self._where = [], {}
        lengths = sorted({len(context) for context in where}, reverse=True)
        known = [next((n for n in lengths if n < len(p) and tuple(p[:n]) in where), 0) for p in prompts]
        kept = [number for number, length in enumerate(known) if length]
        if not kept:
            return None
        going = [(prompts[number], known[number]) for number in kept]
        started = _gone_on(model, parts, where, going, pad_id)
        rest = [number for number, length in enumerate(known) if not length]
        if not rest:
            return started
        return _joined(started, kept, prefill([prompts[number] for number in rest]), rest)


def _gone_on(
    model: Any,
    parts: list[_Part],
    where: Mapping[tuple[int, ...], tuple[int, int]],
    going: Sequence[tuple[Sequence[int], int]],
    pad_id: int,
) -> Started:
    """Computes what is new of prompts, each with the number of its first tokens that were kept."""
    prompts, known = [prompt for prompt, _ in going], [length for _, length in going]
    places = [where[tuple(prompt[:length])] for prompt, length in going]
    cache, mask = _together(parts, places, max(known))
    new = max(len(prompt) - length for prompt, length in zip(prompts, known, strict=True))
    ids = torch.full((len(prompts), new), pad_id, dtype=torch.long)
    fresh = torch.zeros_like(ids)
    for row, (prompt, length) in enumerate(zip(prompts, known, strict=True)):
        rest = torch.tensor(prompt[length:])
        ids[row, new - len(rest) :], fresh[row, new - len(rest) :] = rest, 1
    mask = torch.cat([mask, fresh.to(mask.device)], dim=1)
    positions = (mask.cumsum(dim=1) - 1)[:, -new:]
    output = model(
        input_ids=ids.to(mask.device),
        attention_mask=mask,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=1,
        **{cache_argument(model): cache},
    )
    return Started(carried(model, output), mask, positions[:, -1], output.logits[:, -1])


def _joined(first: Started, rows: Sequence[int], other: Started, others: Sequence[int]) -> Started:
    parts = [_part(first), _part(other)]
    places = [(0, 0)] * (len(rows) + len(others))
    for part, numbers in enumerate((rows, others)):
        for row, number in enumerate(numbers):
            places[number] = part, row
    cache, mask = _together(parts, places, max(first.mask.shape[1], other.mask.shape[1]))
    order = torch.tensor([*rows, *others], device=first.logits.device).argsort()
    position = torch.cat([first.position, other.position])[order]
    logits = torch.cat([first.logits, other.logits])[order]
    return Started(Carried(first.carries.name, cache), mask, position, logits)


def _part(started: Started) -> _Part:
    layers = started.carries.cache.layers
    return _Part([(layer.keys, layer.values) for layer in layers], started.mask.bool())


def _together(parts: list[_Part], places: Sequence[tuple[int, int]], width: int) -> tuple[Any, torch.Tensor]:
    """Returns a cache of `width` slots with the rows at these places of the parts, and its mask [B, width]."""
    from transformers import DynamicCache

    cache: Any = DynamicCache()
    device = parts[0].counts.device
    mask = torch.zeros((len(places), width), dtype=torch.long, device=device)
    taken: list[_Taken] = []
    for number, part in enumerate(parts):
        to = [at for at, (of, _) in enumerate(places) if of == number]
        if not to:
            continue
        rows = torch.tensor([places[at][1] for at in to], device=device)
        counts = part.counts[rows]
        # Slots that count move to the right, in their order.
        slots = counts.int().argsort(dim=1, stable=True)[:, -width:]
        mask[to, width - slots.shape[1] :] = counts.gather(1, slots).long()
        taken.append((part, torch.tensor(to, device=device), rows, slots))
    for layer in range(len(parts[0].layers)):
        joined = [_placed(taken, which, len(places), width) for which in (0, 1)]
        cache.update(*joined, layer)
        for part in parts:
            del part.layers[0]  # gives its memory back before the next layer needs some
    return cache, mask


def _placed(taken: Sequence[_Taken], which: int, batch: int, width: int) -> torch.Tensor:
    """Returns the keys (0) or values (1) of the first layer that is left, [B, heads, width, D]."""
    first = taken[0][0].layers[0][which]
    new = first.new_zeros((batch, first.shape[1], width, first.shape[3]))
    for part, to, rows, slots in taken:
        old = part.layers[0][which][rows]
        index = slots[:, None, :, None].expand(-1, old.shape[1], -1, old.shape[3])
        new[to, :, width - slots.shape[1] :] = old.gather(2, index)
    return new
