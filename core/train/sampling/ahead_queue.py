"""Samples several batches ahead, so that the policy rarely waits for rollouts.

Theory of operation. Before a batch trains, the batch k steps later is queued with a frozen copy of the weights. One
thread syncs the copy to the engine, samples, and compares some rollouts with what the copy computes. Further apart than
rounding, and the batch is sampled again after a full sync; a second time ends the run.

Batch b is always sampled by the policy that was trained on b - k - 1 batches (the first k + 1 by the initial policy).
Each batch has its own random numbers, and a checkpoint waits for the queued batches and holds them, so a killed run
resumes to the same rollouts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from grpo.core.env.episodes import Episode
from grpo.core.env.prompts import encode_episodes
from grpo.core.env.replacement_rows import Place
from grpo.core.policy.modules import without_adapter
from grpo.core.rollout.draws import SEEDS, keys_of, own_draws
from grpo.core.rollout.types import PromptIds
from grpo.core.train.batch.tensors import Tensors
from grpo.core.train.sampling.ahead import probed
from grpo.core.train.sampling.ahead_state import AheadRecord, read_ahead, write_ahead
from grpo.core.train.sampling.guard import Mismatch, difference_metrics, proven
from grpo.core.train.sampling.sampler import PolicySampler
from grpo.core.train.types import EpisodesOf, Generation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ProbeOf = Callable[[Any, Tensors], torch.Tensor]  # a model, padded rollouts to their log-probabilities [N, T] under it


@dataclass(slots=True)
class _Version:
    """A frozen copy of the policy, and how many batches still need it."""

    model: Any
    users: int


@dataclass(frozen=True, slots=True)
class _Proven:
    generation: Generation
    # mean, largest: difference in nats between the engine that sampled it and that version
    mean: float
    largest: float


@dataclass(slots=True)
class _Queued:
    episodes: Sequence[Episode]
    coming: Future[_Proven]  # the batch, when it is proven
    scored: bool = False  # it was handed to the rewards


@dataclass(eq=False)
class AheadQueue:
    """Samples several batches ahead of time, each from a known version of the policy."""

    inner: PolicySampler  # samples what was not sampled ahead, from the policy itself
    # returns what samples from a copy of the policy; with `inner` it shares a turn (`SyncedRollouts`)
    sampler_of: Callable[[Any], PolicySampler]
    copies: FrozenCopies
    probe: ProbeOf
    depth: int  # batches ahead, k
    seed: int
    tokenizer: PreTrainedTokenizerBase  # of the policy, for the thread that trains
    tolerance: float
    device: torch.device
    episode_at: Callable[[Place], Episode]
    _queue: dict[int, _Queued] = field(default_factory=dict, init=False)  # step to its batch
    # of the checkpoint of a resumed run, the next batch first
    _records: list[AheadRecord] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grpo-ahead")

    def next(self, episodes: Sequence[Episode], step: int, *, again: bool = False) -> Generation:
        """Returns the batch as it was sampled ahead, else samples it now; the rest of the queue stays."""
        self._restore(step, lambda other: episodes if other == step else ())
        queued = self._queue.pop(step, None)
        if queued is None or again or list(queued.episodes) != list(episodes):
            if queued is not None and queued.scored:
                queued.coming.result().generation.early.drop()
            generation = self.inner.next(episodes, step, again=again)
        else:
            proven = queued.coming.result()
            generation = proven.generation if queued.scored else self.inner.scoring(proven.generation)
            generation = replace(
                generation, metrics={**generation.metrics, **difference_metrics(proven.mean, proven.largest)}
            )
        return replace(generation, metrics={**generation.metrics, "sampling/staleness": float(generation.staleness)})

    def ahead(self, step: int, episodes_of: EpisodesOf) -> Mapping[str, float]:
        """Queues the batches of the next k steps that are not queued yet, and starts scoring those that are ready."""
        self._restore(step + 1, episodes_of)
        lacking = [later for later in range(step + 1, step + self.depth + 1) if later not in self._queue]
        batches = {later: episodes for later in lacking if (episodes := episodes_of(later))}
        if batches:
            version = _Version(self.copies.take(), len(batches))
            for later, episodes in batches.items():
                prompts = encode_episodes(self.tokenizer, episodes)
                coming = self._thread.submit(self._sampled, version, episodes, prompts, later, later - step)
                self._queue[later] = _Queued(episodes, coming)
        if step + 1 in self._queue and self._queue[step + 1].coming.done():
            self._begin_scoring(step + 1)
        return {"sampling/queued": float(sum(queued.coming.done() for queued in self._queue.values()))}

    def settle(self, step: int) -> Mapping[str, float]:
        """Waits for the next batch alone. Raises RunError if it did not come from its version of the policy."""
        if step + 1 not in self._queue:
            return {}
        began = time.perf_counter()
        self._queue[step + 1].coming.result()
        waited = time.perf_counter() - began
        self._begin_scoring(step + 1)
        return {"time/ahead_wait": waited}

    def save(self, checkpoint: Path) -> None:
        for turn, step in enumerate(sorted(self._queue), start=1):
            proven = self._queue[step].coming.result()
            write_ahead(checkpoint, turn, proven.generation, mean=proven.mean, largest=proven.largest)

    def load(self, checkpoint: Path) -> None:
        """Reads the batches that were queued. Raises UsageError if a file is damaged."""
        self._records = []
        while (record := read_ahead(checkpoint, len(self._records) + 1)) is not None:
            self._records.append(record)

    def close(self) -> None:
        """Drops the queue, and waits for the batch being sampled."""
        self._thread.shutdown(cancel_futures=True)
        for queued in self._queue.values():
            if queued.scored:
                queued.coming.result().generation.early.drop()
        self._queue.clear()

    def _restore(self, step: int, episodes_of: EpisodesOf) -> None:
        for later in range(step, step + len(self._records)):
            episodes = episodes_of(later)
            if not episodes:
                return
            record = self._records.pop(0)
            generation = record.generation(episodes, partial(encode_episodes, self.tokenizer), self.episode_at)
            if generation is not None:
                coming: Future[_Proven] = Future()
                coming.set_result(_Proven(generation, record.mean, record.largest))
                self._queue[later] = _Queued(episodes, coming)

    def _begin_scoring(self, step: int) -> None:
        queued = self._queue[step]
        if not queued.scored:
            proven = queued.coming.result()
            queued.coming, queued.scored = Future(), True
            queued.coming.set_result(replace(proven, generation=self.inner.scoring(proven.generation)))

    def _sampled(
        self, version: _Version, episodes: Sequence[Episode], prompts: PromptIds, step: int, staleness: int
    ) -> _Proven:
        try:
            sampler = self.sampler_of(version.model)
            seed = keys_of(self.seed, step, (0,))[0] % SEEDS

            def attempt(anew: bool) -> tuple[Generation, Mismatch]:
                with own_draws(seed):
                    generation = sampler.synced(episodes, prompts, again=anew)
                apart = Mismatch(self.tolerance)
                probe = partial(self.probe, version.model)
                apart.add(probed(generation, probe, self.tokenizer.pad_token_id, self.device))
                return generation, apart

            generation, apart, repeated = proven(step, attempt, sampler.rollouts.differing)
            generation = replace(generation, staleness=staleness, metrics={**generation.metrics, **repeated})
            return _Proven(generation, apart.mean, apart.largest)
        finally:
            version.users -= 1
            if not version.users:
                self.copies.give_back(version.model)


@dataclass(eq=False)
class FrozenCopies:
    """Copies of the policy with earlier weights; only trained ones are copied, and a returned copy is reused."""

    policy: Callable[[], Any]
    # gives a copy the way to be called that belongs to one model object (core/train/update/head.py)
    attach: Callable[[Any], None]
    _free: deque[Any] = field(default_factory=deque, init=False)

    def take(self) -> Any:
        """Returns a copy with the policy's present weights, in evaluation mode."""
        policy = self.policy()
        copy = self._free.pop() if self._free else self._made(policy)
        with torch.no_grad():
            for own, new in zip(copy.parameters(), policy.parameters(), strict=True):
                if own is not new:
                    own.copy_(new)
        return copy

    def give_back(self, copy: Any) -> None:
        self._free.append(copy)

    def _made(self, policy: Any) -> Any:
        kept = {id(parameter): parameter for parameter in policy.parameters() if not parameter.requires_grad}
        made = deepcopy(policy, kept)
        for module in {made, without_adapter(made)}:
            module.__dict__.pop("forward", None)  # what stands around the policy's own computes with the policy
        self.attach(made)
        made.eval()
        return made
