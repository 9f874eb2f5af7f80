"""Collects scored rollouts as tensors; advantages are computed over those of all processes, alike on each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

import torch

from grpo.core.env.episodes import Episode
from grpo.core.plan import Plan
from grpo.core.processes.group import gathered, rows_of_all
from grpo.core.processes.rank import rank
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.train.batch.batch import Batch, advantages_of, trained_of
from grpo.core.train.batch.metrics import batch_metrics, length_metrics, sampling_metrics
from grpo.core.train.batch.tensors import Tensors, counted, of_tokens, padded, rollouts_in, spread
from grpo.core.train.types import BatchScoring, Generation, Sampler
from grpo.core.train.update.objective import refuse_trees


@dataclass(frozen=True, slots=True)
class Collected:
    batch: Batch  # the rollouts of all processes
    tensors: Tensors  # this process's own, with advantages; see core/train/batch/tensors.py
    staleness: int  # optimizer steps between the policy that sampled and the one that trains
    tokens: int
    metrics: dict[str, float]


@dataclass(eq=False)
class Collector:
    plan: Plan
    sampler: Sampler
    scoring: BatchScoring
    end_ids: InitVar[Sequence[int]]  # the tokens that end a completion, and what fills up
    pad_id: int
    device: torch.device
    own_head: bool = True  # our output layer trains, and not TRL's
    _takes_trees: bool = field(default=False, init=False)  # as far as is known

    def __post_init__(self, end_ids: Sequence[int]) -> None:
        self._end_ids = {*end_ids, self.pad_id}

    def collect(self, episodes: Sequence[Episode], step: int, *, again: bool) -> Collected:
        """Makes the batch of these episodes, which are this process's own."""
        began = time.perf_counter()
        generation = self.sampler.next(episodes, step, again=again)
        sampled = time.perf_counter()
        completions = [rollout.completion for rollout in generation.rollouts]
        outcomes = generation.outcomes
        if outcomes is None:
            outcomes = self.scoring.score(completions, generation.early)
        scored = time.perf_counter()
        sizes = [
            (
                _asked(prompt, rollout),
                sum(rollout.sampled),
                bool(rollout.token_ids) and rollout.token_ids[-1] in self._end_ids,
            )
            for prompt, rollout in zip(generation.prompts, generation.rollouts, strict=True)
        ]
        names = list(outcomes)
        places = [(episode.env, episode.index) for episode in generation.episodes]
        sampled_by = [rollout.sampled_by for rollout in generation.rollouts]
        branches = [len(rollout.branches) for rollout in generation.rollouts]
        each = zip(*outcomes.values(), strict=True)
        rows = list(zip(completions, sizes, each, places, sampled_by, branches, strict=True))
        rows = rows_of_all(rows, "the scored completions")
        wasted = rows_of_all(generation.wasted, "discarded samples")
        early = generation.score_seconds if not generation.staleness else 0.0  # else while the last batch trained
        outcomes = {name: [row[2][number] for row in rows] for number, name in enumerate(names)}
        size = self.plan.config.train.group_size
        turns = [row[0].turns for row in rows] if self.plan.advantage.spec.turns else None
        batch = Batch(
            step=step,
            completions=tuple(row[0] for row in rows),
            outcomes=outcomes,
            advantages=advantages_of(outcomes, self.plan.rewards, size, self.plan.advantage, self.device, turns),
            group_size=size,
            generate_seconds=sampled - began - early,
            score_seconds=scored - sampled + early,
            wasted=tuple(wasted),
            places=tuple(row[3] for row in rows),
            sampled_by=tuple(row[4] for row in rows),
            branches=tuple(row[5] for row in rows),
        )
        if any(batch.branches) and not self._takes_trees:
            partial = bool(self.plan.config.rollout.partial)
            refuse_trees(self.plan.loss, self.plan.advantage, own_head=self.own_head, partial=partial)
            self._takes_trees = True
        tensors = padded(generation.prompts, generation.rollouts, self.pad_id, self.device)
        self._enter(tensors, batch)
        lengths, ended = [row[1][1] for row in rows], [row[1][2] for row in rows]
        return Collected(
            batch=batch,
            tensors=tensors,
            staleness=generation.staleness,
            tokens=sum(row[1][0] for row in rows)
            + sum(lengths)
            + sum(_asked(sample.prompt, sample.rollout) + sum(sample.rollout.sampled) for sample in wasted),
            metrics={
                **generation.metrics,
                **length_metrics(lengths, ended),
                **batch_metrics(batch, self.plan.rewards),
                **sampling_metrics(batch, self.plan.batch_size, filled=generation.outcomes is not None),
                **_speed(generation, [len(rollout.token_ids) for rollout in batch.sampled], sampled - began - early),
                "time/score_queue": float(generation.waiting),
            },
        )

    def _enter(self, tensors: Tensors, batch: Batch) -> None:
        count = rollouts_in(tensors)
        local = slice(rank() * count, (rank() + 1) * count)
        trained = trained_of(batch, self.plan.config.loss)[local].to(tensors["completion_mask"].dtype)
        trained = spread(trained, tensors)
        tensors["completion_mask"] = tensors["completion_mask"] * trained[:, None]
        turns = batch.advantages.turns
        if turns is None:
            tensors["advantages"] = spread(batch.advantages.values[local], tensors)
        else:
            numbers = [completion.turns for completion in batch.completions[local]]
            tensors["advantages"] = of_tokens(turns[local], counted(tensors), numbers)
        tensors["num_items_in_batch"] = torch.tensor(
            sum(gathered(int(counted(tensors).sum()), "the numbers of tokens")), device=self.device
        )


def _asked(prompt: Sequence[int], rollout: Trajectory) -> int:
    return sum(len(branch.prompt) for branch in rollout.branches) if rollout.branches else len(prompt)


def _speed(generation: Generation, lengths: Sequence[int], seconds: float) -> dict[str, float]:
    seconds -= generation.metrics.get("sync/seconds", 0.0)
    if seconds <= 0 or (generation.staleness and generation.tokens is None):
        return {}
    tokens = sum(lengths) if generation.tokens is None else generation.tokens
    return {"time/tokens_per_second": tokens / seconds}
