"""Chooses the prompts of the next step from the results of scored batches.

Without a sampler the order of the run is fixed (core/env/order.py). A sampler chooses the rows of each step from all
outcomes before, which are in every checkpoint, alike on all processes; the number of prompts per environment stays.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from grpo.core.env.episodes import Episode
from grpo.core.env.replacement_rows import Place
from grpo.core.plan import Plan
from grpo.core.processes.rank import is_first
from grpo.core.record.run_dir import read_json, whole_file
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.advantages.compute import NO_SIGNAL
from grpo.core.train.batch.batch import Batch
from grpo.core.train.sft.data import run_order
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.errors import UsageError
from grpo.plugins.sampling import RowsSeen, Visit

FILE = "rows_seen.json"


@dataclass(frozen=True, slots=True)
class _Scale:
    rewards: tuple[BoundReward, ...]
    # low, high: the lowest and the highest total; infinite where a reward has no such score
    low: float
    high: float

    @classmethod
    def of(cls, rewards: tuple[BoundReward, ...]) -> _Scale:
        ends = [sorted(reward.weight * end for end in reward.spec.range) for reward in rewards if reward.weight]
        return cls(rewards, sum(end[0] for end in ends), sum(end[1] for end in ends))

    def total(self, outcomes: Mapping[str, Outcome]) -> float | None:
        scores = [outcomes[reward.name].score for reward in self.rewards]
        known = [reward.weight * score for reward, score in zip(self.rewards, scores, strict=True) if score is not None]
        return sum(known) if len(known) == len(scores) else None

    def rate(self, totals: list[float]) -> float | None:
        if not totals or not (math.isfinite(self.low) and math.isfinite(self.high)) or self.low >= self.high:
            return None
        return (sum(totals) / len(totals) - self.low) / (self.high - self.low)


class Prompts:
    def __init__(self, plan: Plan) -> None:
        self._sampler = plan.sampler
        self._seed = plan.config.seed
        self._train = plan.train
        self._rows = {part.name: part.train for part in plan.envs}
        self._scales = {part.name: _Scale.of(part.rewards) for part in plan.envs}
        self._order = array("q", run_order(plan))  # of a million rows, in 8 MB
        self._count = plan.config.train.prompts_per_step
        self._passes = plan.config.loss.num_iterations
        grouped = any(reward.grouped for reward in plan.rewards)  # such a reward needs a group in one process
        shared = 1 if grouped else math.gcd(plan.processes, plan.config.train.group_size)
        self._together = plan.processes // shared  # processes share so many prompts evenly
        # Several batches ahead, what became of the last ones is not known when a batch is asked for.
        self._lag = max(1, plan.config.rollout.ahead)
        self._visits: dict[str, dict[int, list[Visit]]] = {name: {} for name in self._rows}

    def of_step(self, step: int) -> list[Episode]:
        """Returns the episodes of the batch that an optimizer step (from 1) trains on first; none after the last one.

        A sampler may choose fewer than `prompts_per_step`. Outcomes from that step on do not count.
        """
        first = (step - 1) // self._passes * self._count
        asked = [self._train[number] for number in self._order[first : first + self._count]]
        if self._sampler is None:
            return asked
        chosen = {
            env: self._chosen(env, count, step) for env, count in Counter(request.env for request in asked).items()
        }
        episodes = [
            self._rows[request.env][row] for request in asked if (row := next(chosen[request.env], None)) is not None
        ]
        missing = -len(episodes) % self._together
        return [*episodes, *islice(cycle(episodes), missing)]

    def _chosen(self, env: str, count: int, step: int) -> Iterator[int]:
        rows = self.chosen(env, count, step, ())
        return islice(cycle(rows), count) if len(rows) == len(self._rows[env]) else iter(rows)

    def chosen(self, env: str, count: int, step: int, taken: Collection[int]) -> list[int]:
        """Returns the rows that the sampler chooses for an optimizer step; as many as there are."""
        assert self._sampler is not None
        self._forget(step)
        rows, seed = len(self._rows[env]), f"{self._seed} {env}"
        known = {
            row: [environment for environment in every if environment.step <= step - self._lag]
            for row, every in self._visits[env].items()
        }
        visits = {row: every for row, every in known.items() if every}
        return self._sampler.choose(RowsSeen(rows, count, step, seed, visits, frozenset(taken)))

    def note_batch(self, batch: Batch) -> None:
        """Notes the outcomes of a batch's rows, wasted ones too."""
        if self._sampler is None:
            return
        self._forget(batch.step)
        totals: dict[Place, list[float]] = {}
        every = [({name: each[i] for name, each in batch.outcomes.items()}, at) for i, at in enumerate(batch.places)]
        every += [(dict(sample.outcomes), (sample.start.env, sample.start.index)) for sample in batch.wasted]
        for outcomes, (env, row) in every:
            total, own = self._scales[env].total(outcomes), totals.setdefault((env, row), [])
            if total is not None:
                own.append(total)
        for (env, row), own in totals.items():
            visit = Visit(batch.step, self._scales[env].rate(own), bool(own) and max(own) - min(own) > NO_SIGNAL)
            self._visits[env].setdefault(row, []).append(visit)

    def save(self, checkpoint: Path) -> None:
        """Writes the outcomes into the folder of a checkpoint."""
        if self._sampler is not None and is_first():
            written = [
                [env, row, visit.step, visit.rate, visit.signal]
                for env, rows in self._visits.items()
                for row, visits in rows.items()
                for visit in visits
            ]
            with whole_file(checkpoint / FILE) as unfinished:
                unfinished.write_text(json.dumps(written), encoding="utf-8")

    def load(self, checkpoint: Path) -> None:
        """Reads what `save` wrote. Raises UsageError if the file is missing or damaged."""
        if self._sampler is None:
            return
        written = read_json(checkpoint / FILE)
        if written is None:
            raise UsageError(
                f"{checkpoint} has no {FILE}, from which sampler '{self._sampler.name}' knows what became of each row: "
                "without it other prompts would be asked. Resume from another checkpoint, or start a new run."
            )
        for env, row, step, rate, signal in written:
            self._visits[env].setdefault(row, []).append(Visit(step, rate, signal))

    def _forget(self, step: int) -> None:
        for rows in self._visits.values():
            for row in [row for row, visits in rows.items() if visits[-1].step >= step]:
                rows[row] = [visit for visit in rows[row] if visit.step < step]
                if not rows[row]:
                    del rows[row]
