"""Implements the rollout backend that samples with the policy itself, through transformers.

Theory of operation of `sample`. Prompts are left-padded with position ids, so a row decodes exactly as it would alone;
where a model's states would see the padding (core/rollout/hf/states.py), prompts of one length are decoded together.
Equal prompts (the members of a group) are prefilled once; their keys and values are shared where that pays
(core/policy/prompt_keys.py), and else copied. During a batch a float32 adapter is merged
(core/rollout/hf/merged_lora.py) and a CPU computes in fewer, larger products (core/rollout/hf/faster_layers.py). Rows
that ended leave the batch as soon as that pays for shrinking the cache. Between turns the cache may be kept
(core/rollout/hf/kept_turns.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from grpo.core.policy.blocks import no_mask, takes_prompts
from grpo.core.policy.prompt_keys import PromptKeys
from grpo.core.rollout.draws import uniforms
from grpo.core.rollout.hf.faster_layers import FEWEST_TOKENS, is_known
from grpo.core.rollout.hf.kept_turns import KeptTurns, Started
from grpo.core.rollout.hf.merged_lora import folded
from grpo.core.rollout.hf.states import carried, needs_equal_lengths, taken
from grpo.core.rollout.types import (
    OnDone,
    PromptIds,
    Sampled,
    SamplingParams,
    context_length,
    evaluating,
    refuse_unfit,
    runs,
)
from grpo.plugins.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

BLOCK = 256  # tokens of the vocabulary that are added up together
LEAST_SHARED = 2**17  # keys of a layer that are not copied; to read fewer takes less time than what replaces it
MOST_UNEVEN = 2  # times the completions of a batch, if every prompt had as many as the one with the most
SHRINK_AT = 0.75  # of the rows still running: shrink the batch when fewer than this share are


class HfRollouts:
    """Samples with the training model itself."""

    exact = True

    def __init__(self, batch_size: int | None = None) -> None:
        self._batch_size = batch_size
        self._model: Any = None

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        self._model = model
        return {}

    def generate(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None = None) -> list[Sampled]:
        size = self._batch_size or max(1, len(prompts))
        return [
            done
            for first in range(0, len(prompts), size)
            for done in sample(
                self._model,
                prompts[first : first + size],
                params.of(range(first, min(first + size, len(prompts)))),
                on_done and _at(on_done, range(first, len(prompts))),
            )
        ]

    def turns(self) -> Callable[[PromptIds, SamplingParams], list[Sampled]]:
        """Returns what samples turn after turn and keeps its cache, unless `batch_size` is to save memory."""
        return self.generate if self._batch_size else partial(sample, self._model, kept=KeptTurns())

    def differing(self, model: Any) -> list[str]:
        """Returns nothing: there is only one copy of the weights."""
        return []

    def rest(self) -> None:
        """Forgets the model, which belongs to the trainer."""
        self._model = None

    def close(self) -> None:
        """Has started nothing."""


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    prompts: PromptIds,
    params: SamplingParams,
    on_done: OnDone | None = None,
    kept: KeptTurns | None = None,
) -> list[Sampled]:
    """Samples one completion for each prompt; equal neighbours share their prefill.

    `model`: put into evaluation mode and back. `kept`: the cache of the last turn, and for the next. Raises UsageError
    for an empty prompt, or one that does not fit the context together with `max_tokens`; RunError if the model computes
    NaN.
    """
    if not prompts:
        return []
    refuse_unfit(prompts, params, context_length(model.config))
    notify = _outside(on_done) if on_done else lambda numbers, done: None
    from grpo.core.policy.attention import without_copies

    packs = params.max_tokens >= FEWEST_TOKENS
    with evaluating(model), without_copies(model), folded(model, packs=packs), _without_records(model):
        lengths = sorted({len(prompt) for prompt in prompts})
        if not needs_equal_lengths(model):
            return _decode(model, prompts, params, notify, kept, padded=True)
        completions: dict[int, Sampled] = {}
        for length in lengths:
            places = [place for place, prompt in enumerate(prompts) if len(prompt) == length]
            own = [prompts[place] for place in places]
            done = _decode(model, own, params.of(places), _at(notify, places), None, padded=False)
            completions |= dict(zip(places, done, strict=True))
        return [completions[place] for place in range(len(prompts))]


def _without_records(model: Any) -> AbstractContextManager[Any]:
    """Returns `inference_mode`, which saves time per call, unless an unknown model or autocast may keep tensors."""
    rounds = torch.is_autocast_enabled(model.device.type)
    return nullcontext() if rounds or not is_known(model) else torch.inference_mode()


def _outside(on_done: OnDone) -> OnDone:
    def passed(numbers: Sequence[int], done: Sequence[Sampled]) -> None:
        with torch.inference_mode(False), torch.no_grad():
            on_done(numbers, done)

    return passed


def _at(on_done: OnDone, places: Sequence[int]) -> OnDone:
    return lambda numbers, done: on_done([places[number] for number in numbers], done)


def _decode(
    model: PreTrainedModel,
    prompts: PromptIds,
    params: SamplingParams,
    on_done: OnDone,
    kept: KeptTurns | None,
    *,
    padded: bool,
) -> list[Sampled]:
    """Samples completions; without `padded` all prompts have one length, and the model gets no mask."""
    device = model.device
    prefill = partial(_prefilled, model, params=params, padded=padded, shares=kept is None)
    started = kept.start(model, prompts, params.pad_id, prefill) if kept is not None else None
    started = started or prefill(prompts)
    if started.logits.isnan().any():
        raise RunError(
            "the policy's logits are not numbers: its weights diverged, or overflow in their dtype. Lower train.lr, or "
            "train in float32 with train.dtype='float32', from an earlier checkpoint."
        )
    carries, logits, position, shared = started.carries, started.logits, started.position, started.prompts
    width = started.mask.shape[1]
    carries.make_room(params.max_tokens if shared else width + params.max_tokens)
    # The mask is allocated at its final width once; each step uses a longer slice of it.
    running = torch.cat([started.mask, started.mask.new_ones(len(prompts), params.max_tokens)], dim=1)

    total = len(prompts)
    tokens = torch.full((total, params.max_tokens), params.pad_id, dtype=torch.long, device=device)
    logprobs = torch.zeros((total, params.max_tokens), dtype=torch.float32, device=device)
    lengths = torch.full((total,), params.max_tokens, dtype=torch.long, device=device)
    stopped = torch.zeros(total, dtype=torch.bool, device=device)
    eos = torch.tensor(params.eos_ids, device=device)
    draws = uniforms(params.keys, total, params.max_tokens if params.temperature else 0).to(device)
    alive = torch.arange(total, device=device)  # the completion that each row of the batch belongs to
    ready: dict[int, Sampled] = {}

    def hand_out(numbers: torch.Tensor) -> None:
        columns = (numbers.tolist(), *(values[numbers].tolist() for values in (tokens, logprobs, lengths, stopped)))
        done = [
            (number, Sampled(tuple(t[:n]), tuple(p[:n]), "stop" if end else "length"))
            for number, t, p, n, end in zip(*columns, strict=True)
        ]
        ready.update(done)
        if done:
            on_done([number for number, _ in done], [completion for _, completion in done])

    def put_aside(rows: torch.Tensor | slice, computed: int) -> None:
        if kept is None:
            return
        numbers = alive[rows]
        counts = running[rows, : width + computed].bool()
        counts[:, width:] &= torch.arange(computed, device=device) < lengths[numbers, None] - 1
        sampled = zip(numbers.tolist(), tokens[numbers].tolist(), lengths[numbers].tolist(), strict=True)
        token_ids = [(*prompts[number], *ids[: length - 1]) for number, ids, length in sampled]
        kept.put(carries.cache, rows, counts, token_ids)

    for step in range(params.max_tokens):
        chosen, logprob = choose(logits, params, draws[alive, step] if params.temperature else draws)
        tokens[alive, step], logprobs[alive, step] = chosen, logprob
        ended = torch.isin(chosen, eos) & ~stopped[alive]
        finished = alive[ended]
        stopped[finished] = True
        lengths[finished] = step + 1
        unfinished = ~stopped[alive]
        left = int(unfinished.sum())
        if left < total - len(ready):
            hand_out(finished)
        if left == 0 or step + 1 == params.max_tokens:
            break
        if left < SHRINK_AT * len(alive):
            keep = unfinished.nonzero()[:, 0]
            put_aside((~unfinished).nonzero()[:, 0], step)
            carries.select(keep)
            if shared:
                shared.select(keep)
            alive, chosen, position, running = alive[keep], chosen[keep], position[keep], running[keep]
        position = position + 1
        if carries.cache is None:
            whole = torch.tensor([prompts[number] for number in alive.tolist()], device=device)
            logits = _anew(model, torch.cat([whole, tokens[alive, : step + 1]], dim=1))
            continue
        output = model(
            input_ids=chosen[:, None],
            use_cache=True,
            **_attention_arguments(shared, running[:, : width + step + 1] if padded else None),
            **taken(model, position_ids=position[:, None]),
            **{carries.name: carries.cache},
        )
        logits, carries = output.logits[:, -1], carried(model, output)

    put_aside(slice(None), step)  # a view: these rows are not copied
    hand_out((~stopped).nonzero()[:, 0])
    return [ready[number] for number in range(total)]


def _prefilled(
    model: PreTrainedModel, prompts: PromptIds, params: SamplingParams, *, padded: bool, shares: bool
) -> Started:
    """Computes prompts, equal neighbours once; with `shares`, these may share their keys and values."""
    device = model.device
    unique, copies = runs(prompts)
    width = max(len(prompt) for prompt in unique)
    ids = torch.full((len(unique), width), params.pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(unique):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    ids, mask = ids.to(device), mask.to(device)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    chosen = taken(model, position_ids=positions, logits_to_keep=1)
    output = model(input_ids=ids, attention_mask=mask if padded else None, use_cache=True, **chosen)

    owner = torch.tensor([row for row, number in enumerate(copies) for _ in range(number)], device=device)
    carries, shared = carried(model, output), None
    if shares and (layers := _worth_sharing(model, carries.cache, copies)):
        shared, carries = PromptKeys(layers, mask, owner), carries.begun(model.config)
    else:
        carries.select(owner)
    return Started(carries, mask[owner], positions[owner, -1], output.logits[owner, -1], shared)


def _worth_sharing(model: Any, cache: Any, copies: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns keys and values of prompts that completions should share; nothing where that takes longer."""
    completions, most = sum(copies), max(copies)
    if not takes_prompts(model.config) or most * len(copies) > MOST_UNEVEN * completions:
        return []
    more = completions - len(copies)
    layers = [(layer.keys, layer.values) for layer in cache.layers]
    keys = layers[0][0]
    gains = keys.device.type == "cpu" and keys.dtype == torch.float32 and more * keys[0].numel() >= LEAST_SHARED
    return layers if gains else []


def _attention_arguments(shared: PromptKeys | None, mask: torch.Tensor | None) -> dict[str, Any]:
    if shared is None:
        return {"attention_mask": mask}
    return {"attention_mask": no_mask(shared.device), "attention_prompts": shared}


def _anew(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Returns the logits [B, V] after rows [B, W] without padding, computed from their first token."""
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    chosen = taken(model, position_ids=positions, logits_to_keep=1)
    output = model(input_ids=ids, use_cache=False, **chosen)
    logits: torch.Tensor = output.logits[:, -1]
    return logits


def choose(logits: torch.Tensor, params: SamplingParams, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Chooses a token per row of logits [B, V] by uniforms [B] float64; returns ids [B] and log-probabilities [B]."""
    logits = logits.float()
    if params.temperature == 0:
        chosen = logits.argmax(dim=-1)
        return chosen, _gather(logits.log_softmax(dim=-1), chosen)
    scaled = (logits if params.temperature == 1.0 else logits / params.temperature).log_softmax(dim=-1)
    probabilities = _filtered(scaled, params).exp()
    chosen = _drawn(probabilities, uniforms)
    return chosen, _gather(scaled, chosen)


def _drawn(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Inverts the cumulative distributions [B, V] float32 at [B] float64, by blocks and then inside of one."""
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
