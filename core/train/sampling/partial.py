"""Samples a part of every rollout in each step, and trains on the groups that are complete.

Theory of operation. A step begins as many rollouts as it has prompts, and all under way go on for so many tokens
(core/rollout/turns/partial.py, docs/rollouts.md), which makes parts independent of speed. The loss weighs each token by
the log-probability under its version of the policy (`loss.rollout_correction`). In each part the policy computes the
new tokens of some rollouts itself: further apart than rounding, and the part is sampled again after a full sync; a
second time ends the run. A checkpoint holds the rollouts under way. An environment cannot be saved: before a
checkpoint, rollouts with stepped environments are played to their end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from grpo.core.env.episodes import Episode
from grpo.core.env.prompts import encode_episodes
from grpo.core.env.replacement_rows import Place
from grpo.core.record.run_dir import read_json, whole_file
from grpo.core.rollout.draws import keys_of
from grpo.core.rollout.turns.partial import TO_THE_END, PartialRollout, PartialRollouts
from grpo.core.rollout.types import Rollouts
from grpo.core.scoring.early import nothing_begun
from grpo.core.train.batch.tensors import counted, padded
from grpo.core.train.sampling.ahead import PROBED, Probe
from grpo.core.train.sampling.ahead_state import restored_rollout, written_rollout
from grpo.core.train.sampling.guard import Mismatch, difference_metrics, difference_sums, proven
from grpo.core.train.sampling.sampler import PolicySampler
from grpo.core.train.types import EpisodesOf, Generation, Sampler
from grpo.plugins.errors import UsageError

PARTS = 2**20  # from the numbers of random draws of one part of a step to those of the next
FILE = "partial.json"


@dataclass(frozen=True, slots=True)
class Part:
    """How much a step samples and trains on."""

    tokens: int  # of each rollout
    groups: int  # the most that train
    size: int


@dataclass(eq=False)
class PartialSampler(Sampler):
    """Samples a part of every rollout at each step."""

    inner: PolicySampler
    rollouts: PartialRollouts
    part: Part
    seed: int | None  # of the run, where each rollout has random numbers of its own; else None
    probe: Probe
    tolerance: float
    device: torch.device
    episode_at: Callable[[Place], Episode]
    episodes_of: EpisodesOf
    # under way, or whole and waiting; the oldest first
    _groups: list[list[PartialRollout]] = field(default_factory=list, init=False)
    _given: list[list[PartialRollout]] = field(default_factory=list, init=False)  # what the present step trains on
    _step: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)  # the last step whose prompts were begun

    def next(self, episodes: Sequence[Episode], step: int, *, again: bool = False) -> Generation:
        """Begins the rollouts of these episodes, samples a part of all, and returns the groups that train."""
        if again and step == self._step:
            self._groups = [*self._given, *self._groups]
            self._rewind(step)
        else:
            self._step = step
            if step > self._begun:
                self._begin(episodes, step)
            elif sum(map(_whole, self._groups)) < self.part.groups:  # else enough have ended already
                self._begin_next()
            if not self._groups:  # a sampler chose few prompts
                self._begin(episodes, self._begun)
        sampled, metrics = self._advanced(step, 0, again=again)
        for part in count(1):
            if any(_whole(group) for group in self._groups):
                break
            self._begin_next()
            more, measured = self._advanced(step, part, again=False)
            sampled, metrics = sampled + more, {**metrics, **measured}
        whole = [group for group in self._groups if _whole(group)]
        self._given = whole[: self.part.groups]
        self._groups = [group for group in self._groups if not any(group is rollout for rollout in self._given)]
        return self._generation(step, sampled, metrics, waiting=len(whole) - len(self._given))

    def save(self, checkpoint: Path) -> None:
        """Plays what cannot be saved to its end, and writes all rollouts that no step has trained on."""
        played = [
            rollout
            for group in self._groups
            for rollout in group
            if self.rollouts.played(rollout) and not rollout.ended
        ]
        if played:
            step = self._step + 1  # whose policy this is by now
            self._proven(played, step, TO_THE_END, -PARTS, again=False)
        record = {"begun": self._begun, "groups": [self._written(group) for group in self._groups]}
        with whole_file(checkpoint / FILE) as unfinished:
            unfinished.write_text(json.dumps(record), encoding="utf-8")

    def load(self, checkpoint: Path) -> None:
        """Reads what `save` wrote. Raises UsageError if the file is damaged."""
        record = read_json(checkpoint / FILE) or {"begun": 0, "groups": []}
        self._begun = record["begun"]
        self._groups += [self._restored(group) for group in record["groups"]]

    def close(self) -> None:
        self.rollouts.close()

    def _begin_next(self) -> None:
        episodes = self.episodes_of(self._begun + 1)
        if episodes:
            self._begin(episodes, self._begun + 1)

    def _begin(self, episodes: Sequence[Episode], step: int) -> None:
        self._begun = step
        size, begun = self.part.size, self.rollouts.begun(episodes, encode_episodes(self.inner.tokenizer, episodes))
        self._groups += [begun[first : first + size] for first in range(0, len(begun), size)]

    def _advanced(self, step: int, part: int, *, again: bool) -> tuple[int, Mapping[str, float]]:
        going = [rollout for group in self._groups for rollout in group if not rollout.ended]
        if not going:
            return 0, {}
        metrics = self._proven(going, step, self.part.tokens, part * PARTS, again=again)
        return sum(rollout.sampled for rollout in going), metrics

    def _proven(
        self, going: Sequence[PartialRollout], step: int, most: int, first: int, *, again: bool
    ) -> Mapping[str, float]:
        """Samples a part, and again on a mismatch; a second one raises. `first`: its first random draw in the step."""
        keys = None
        if self.seed is not None:
            keys = keys_of(self.seed, step, range(first, first + len(going)))

        def sample(rollouts: Rollouts) -> None:
            self.rollouts.advance(going, rollouts, most, keys)

        def attempt(anew: bool) -> tuple[Mapping[str, float], Mismatch]:
            if anew:
                self.rollouts.rewind(going, 0)
            for rollout in going:
                rollout.begin_part()
            _, metrics = self.inner.rollouts.roll_out(sample, again=again or anew)
            return metrics, self._apart(going)

        metrics, apart, repeated = proven(step, attempt, self.inner.rollouts.differing)
        for rollout in going:
            rollout.end_part(step)
        return {**metrics, **repeated, **difference_metrics(apart.mean, apart.largest)}

    def _apart(self, going: Sequence[PartialRollout]) -> Mismatch:
        apart = Mismatch(self.tolerance)
        new = [rollout for rollout in going if rollout.sampled]
        if not new:
            return apart
        chosen = [new[number * len(new) // PROBED] for number in range(PROBED)] if len(new) > PROBED else new
        tokens = [rollout.tokens_so_far() for rollout in chosen]
        tensors = padded([rollout.prompt for rollout in chosen], tokens, self.inner.tokenizer.pad_token_id, self.device)
        mask = counted(tensors)
        for row, rollout in enumerate(chosen):
            mask[row, : rollout.first_new] = 0
        apart.add(difference_sums(self.probe(tensors), tensors["sampling_per_token_logps"], mask))
        return apart

    def _generation(self, step: int, sampled: int, metrics: Mapping[str, float], *, waiting: int) -> Generation:
        members = [(number, rollout) for number, group in enumerate(self._given) for rollout in group]
        rollouts = [self.rollouts.trajectory(rollout, number) for number, rollout in members]
        ages = [(step - by, tokens) for _, rollout in members for by, tokens in rollout.sampled_by]
        oldest, every = max((age for age, _ in ages), default=0), max(1, sum(tokens for _, tokens in ages))
        generation = Generation(
            [replace(rollout.start, group=number) for number, rollout in members],
            [rollout.prompt for _, rollout in members],
            rollouts,
            nothing_begun(),
            staleness=oldest,
            metrics={
                **metrics,
                "sampling/staleness": float(oldest),
                "sampling/older_tokens": sum(tokens for age, tokens in ages if age) / every,
                "sampling/carried": float(sum(not rollout.ended for group in self._groups for rollout in group)),
                "sampling/waiting_groups": float(waiting),
            },
            tokens=sampled,
        )
        return self.inner.scoring(generation)

    def _rewind(self, step: int) -> None:
        self._groups.sort(key=lambda group: group[0].state.number)
        for group in self._groups:
            for rollout in group:
                rollout.begin_part()
            self.rollouts.rewind(group, step)

    def _written(self, group: Sequence[PartialRollout]) -> dict[str, Any]:
        members: list[dict[str, Any]] = []
        for rollout in group:
            own: dict[str, Any] = {"tokens": rollout.state.tokens, "logprobs": rollout.state.logprobs}
            if rollout.ended:
                own = {"whole": written_rollout(self.rollouts.trajectory(rollout, 0))}
            members.append({"sampled_by": rollout.sampled_by, **own})
        start = group[0].start
        return {"place": [start.env, start.index], "prompt": list(group[0].prompt), "members": members}

    def _restored(self, record: Mapping[str, Any]) -> list[PartialRollout]:
        """Returns the group that `_written` wrote; one whose prompt has changed begins again."""
        env, index = record["place"]
        start, members = self.episode_at((env, index)), record["members"]
        episodes = [start] * len(members)
        prompts = encode_episodes(self.inner.tokenizer, episodes)
        group = self.rollouts.begun(episodes, prompts)
        if list(prompts[0]) != record["prompt"]:
            return group
        for rollout, member in zip(group, members, strict=True):
            rollout.sampled_by = [(step, tokens) for step, tokens in member["sampled_by"]]
            if "whole" in member:
                rollout.whole = restored_rollout(start, member["whole"])
            else:
                rollout.state.add_sampled(member["tokens"], member["logprobs"])
        return group


def refuse_uncorrected(*, corrects: bool) -> None:
    """Raises UsageError for a loss that does not weigh tokens of earlier steps."""
    if not corrects:
        raise UsageError(
            "--partial with a mixture of experts: its loss is TRL's, which does not correct for tokens of earlier "
            "steps. Leave --partial out."
        )


def _whole(group: Sequence[PartialRollout]) -> bool:
    return all(rollout.ended for rollout in group)
