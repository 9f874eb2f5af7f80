"""Samples the next batch while the policy trains on the present one.

Theory of operation. Before a batch trains, the engine is synced and a thread samples the next batch beside the forward
and backward passes. Before the optimizer step the thread is joined, and the policy, still the one that sampled,
computes a few of the rollouts: further apart than rounding, and the engine is synced in full and the batch sampled
again. All processes act together. The engine draws from torch's generators in this process, so a policy with dropout is
refused, and afterwards the generators are as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from grpo.core.env.episodes import Episode
from grpo.core.env.prompts import encode_episodes
from grpo.core.env.replacement_rows import Place
from grpo.core.processes.group import any_of
from grpo.core.rollout.draws import SEEDS
from grpo.core.rollout.sync.fault import SyncFault
from grpo.core.rollout.types import PromptIds
from grpo.core.text.randomness import preserved_randomness
from grpo.core.train.batch.tensors import Tensors, counted, padded
from grpo.core.train.sampling.ahead_state import AheadRecord, read_ahead, write_ahead
from grpo.core.train.sampling.guard import Gather, Mismatch, difference_metrics, difference_sums, mismatch_text
from grpo.core.train.sampling.sampler import PolicySampler
from grpo.core.train.types import EpisodesOf, Generation
from grpo.plugins.errors import RunError, UsageError

PROBED = 8  # rollouts of a batch that the policy computes once more
Probe = Callable[[Tensors], torch.Tensor]  # padded rollouts to their log-probabilities [N, T] under the policy


@dataclass(frozen=True, slots=True)
class _Sampling:
    episodes: Sequence[Episode]
    prompts: PromptIds
    thread: ThreadPoolExecutor
    coming: Future[Generation]
    seed: int
    randomness: ExitStack  # puts torch's generators back

    def wait(self) -> Generation:
        with self.randomness, self.thread:
            return self.coming.result()

    def give_up(self) -> None:
        with suppress(Exception):
            self.wait().early.drop()


@dataclass(frozen=True, slots=True)
class _Ready:
    episodes: Sequence[Episode]  # the episodes that were asked for; some may have given their place to others
    generation: Generation
    mean: float
    largest: float


@dataclass(eq=False)
class AheadSampler:
    """Samples one batch ahead of time; `inner` samples what was not sampled ahead."""

    inner: PolicySampler
    probe: Probe
    tolerance: float
    device: torch.device
    gather: Gather
    episode_at: Callable[[Place], Episode]
    _sampling: _Sampling | None = field(default=None, init=False)
    _ready: _Ready | None = field(default=None, init=False)
    _recorded: AheadRecord | None = field(default=None, init=False)  # what the checkpoint of a resumed run holds

    def next(self, episodes: Sequence[Episode], step: int, *, again: bool = False) -> Generation:
        ready, self._ready = self._ready or self._resumed(episodes), None
        fits = ready is not None and self._sampling is None and list(ready.episodes) == list(episodes)
        if not any_of(not fits, "the batch that was sampled ahead") and ready is not None:
            generation = replace(ready.generation, staleness=1, metrics=difference_metrics(ready.mean, ready.largest))
        else:  # the first batch, or one that has to be sampled again
            if ready is not None:
                ready.generation.early.drop()
            self.close()
            generation = self.inner.next(episodes, step, again=again)
        return replace(generation, metrics={**generation.metrics, "sampling/staleness": float(generation.staleness)})

    def ahead(self, step: int, episodes_of: EpisodesOf) -> Mapping[str, float]:
        """Starts sampling the batch after the present one, if there is one."""
        upcoming = episodes_of(step + 1)
        if not upcoming:
            return {}
        prompts = encode_episodes(self.inner.tokenizer, upcoming)
        metrics = self.inner.rollouts.sync()
        seed, randomness = int(torch.randint(SEEDS, ())), ExitStack()
        randomness.enter_context(preserved_randomness(seed))
        thread = ThreadPoolExecutor(1, "grpo-ahead")
        coming = thread.submit(self.inner.unsynced, upcoming, prompts)
        self._sampling = _Sampling(upcoming, prompts, thread, coming, seed, randomness)
        return metrics

    def settle(self, step: int) -> Mapping[str, float]:
        """Waits for the batch, and samples it again if it did not come from the policy. Raises RunError."""
        if self._sampling is None:
            return {}
        began = time.perf_counter()
        sampling, self._sampling = self._sampling, None
        self._ready, metrics = self._proven(sampling, step)
        return {**metrics, "time/ahead_wait": time.perf_counter() - began}

    def save(self, checkpoint: Path) -> None:
        if self._ready is not None:
            generation = replace(self._ready.generation, staleness=1)
            write_ahead(checkpoint, 1, generation, mean=self._ready.mean, largest=self._ready.largest)

    def load(self, checkpoint: Path) -> None:
        """Reads the batch that was ready. Raises UsageError if the file is damaged."""
        self._recorded = read_ahead(checkpoint, 1)

    def close(self) -> None:
        sampling, self._sampling = self._sampling, None
        if sampling is not None:
            sampling.give_up()
        self._ready = None

    def _resumed(self, episodes: Sequence[Episode]) -> _Ready | None:
        recorded, self._recorded = self._recorded, None
        encode = partial(encode_episodes, self.inner.tokenizer)
        generation = None if recorded is None else recorded.generation(episodes, encode, self.episode_at)
        if recorded is None or generation is None:
            return None
        scored = generation if generation.outcomes is not None else self.inner.scoring(generation)
        return _Ready(episodes, scored, recorded.mean, recorded.largest)

    def _proven(self, sampling: _Sampling, step: int) -> tuple[_Ready, Mapping[str, float]]:
        generation: Generation | None = None
        before = None
        with suppress(SyncFault):  # the engine lost its weights, and everything is to be handed over again
            generation = sampling.wait()
        if not any_of(generation is None, "the batch that is sampled ahead"):
            assert generation is not None
            generation = self._filled(generation, sampling, step)
            apart = self._apart(generation)
            if not apart.too_far:
                return _Ready(sampling.episodes, generation, apart.mean, apart.largest), {}
            before = apart.mean, apart.largest
            generation.early.drop()
            generation = None
        with preserved_randomness(sampling.seed):
            generation = self.inner.synced_unless(generation, sampling.episodes, sampling.prompts)
        generation = self._filled(generation, sampling, step)
        apart = self._apart(generation)
        if apart.too_far:
            names = self.inner.rollouts.differing()
            raise RunError(mismatch_text(step, before or (apart.mean, apart.largest), apart, names))
        return _Ready(sampling.episodes, generation, apart.mean, apart.largest), {
            **generation.metrics,
            "sync/batches_again": 1.0,
        }

    def _filled(self, generation: Generation, sampling: _Sampling, step: int) -> Generation:
        """Fills the batch up, from random numbers that are the same when it is sampled again."""
        with preserved_randomness((sampling.seed + 1) % SEEDS):
            return self.inner.filled(generation, step + 1, unsynced=True)

    def _apart(self, generation: Generation) -> Mismatch:
        apart = Mismatch(self.tolerance)
        apart.add(self.gather(probed(generation, self.probe, self.inner.tokenizer.pad_token_id, self.device)))
        return apart


def probed(generation: Generation, probe: Probe, pad_id: int, device: torch.device) -> torch.Tensor:
    """Returns the `difference_sums` [1, 3] between some rollouts and the policy that sampled them."""
    count = min(PROBED, len(generation.rollouts))
    chosen = [number * len(generation.rollouts) // count for number in range(count)]
    prompts = [generation.prompts[number] for number in chosen]
    rollouts = [generation.rollouts[number] for number in chosen]
    tensors = padded(prompts, rollouts, pad_id, device)
    return difference_sums(probe(tensors), tensors["sampling_per_token_logps"], counted(tensors))


def refuse_unfit_policy(model: Any, *, corrects: bool) -> None:
    """Raises UsageError for a policy with dropout, or a loss without rollout correction."""
    if not corrects:
        raise UsageError(
            "--ahead with a mixture of experts: its loss is TRL's, which does not correct for rollouts of earlier "
            "steps. Leave --ahead out."
        )
    config = model.config.get_text_config()
    dropouts = [(name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)]
    named = [f"{name} ({module.p:g})" for name, module in dropouts if module.p > 0]
    named += [f"{key} ({value:g})" for key in ("attention_dropout",) if (value := getattr(config, key, 0.0) or 0.0)]
    if named:
        raise UsageError(
            f"--ahead: the policy has dropout, {named[0]}, which would draw from torch's generators while the engine "
            "does, and no run could be repeated. Set the model's dropout to 0, or leave --ahead out."
        )
