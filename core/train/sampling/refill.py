"""Resamples failed completions and replaces zero-variance groups within a step (DAPO dynamic sampling).

A group without signal has no gradient, so replacing it keeps the gradient's direction on average and scales it. That is
not exact for the KL term, for averages over the batch (`dapo`, `bnpo`, `reinforce_plus_plus:baseline=group`,
`group_mean:scale=batch`) and where the budget runs out. What was sampled in vain is kept as `Wasted`. All processes
decide alike, over the groups of all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

import torch

from grpo.core.config.settings import Settings
from grpo.core.env.episodes import Episode
from grpo.core.env.replacement_rows import Place, ReplacementRows
from grpo.core.processes.group import any_of, gathered, rows_of_all
from grpo.core.processes.rank import count as processes
from grpo.core.processes.rank import rank
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.batch.batch import advantages_of
from grpo.core.train.types import BatchScoring, Generation, SampleMore, Wasted
from grpo.plugins._spec.binding import BoundAdvantage, BoundReward
from grpo.plugins.types import Completion

CPU = torch.device("cpu")  # where scores are compared


@dataclass(frozen=True, slots=True)
class _Member:
    start: Episode
    prompt: Sequence[int]
    rollout: Trajectory
    outcomes: Mapping[str, Outcome]

    @property
    def place(self) -> Place:
        return self.start.env, self.start.index


@dataclass(slots=True)
class _Filling:
    members: list[_Member]  # this process's own
    size: int
    sample: SampleMore  # samples from the weights that sampled the batch
    used: set[Place] = field(default_factory=set)
    wasted: list[Wasted] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0  # that scoring took

    @property
    def first(self) -> int:
        return rank() * len(self.members)

    def group_of(self, number: int) -> int:
        return (self.first + number) // self.size

    def of_groups(self, groups: Sequence[int]) -> list[int]:
        wanted = {*groups}
        return [number for number in range(len(self.members)) if self.group_of(number) in wanted]


@dataclass(eq=False)
class Refiller:
    """Fills batches up."""

    # how often a completion is sampled again (`rollout.refill`), and for how many tokens groups are replaced
    # (`rollout.dynamic`)
    config: InitVar[Settings]
    rewards: Sequence[BoundReward]
    advantage: BoundAdvantage
    scoring: BatchScoring
    replacements: ReplacementRows

    def __post_init__(self, config: Settings) -> None:
        self._refills = config.rollout.refill
        self._budget = config.rollout.dynamic
        self._size = config.train.group_size
        self._grouped = any(reward.grouped for reward in self.rewards)

    def filled(self, generation: Generation, step: int, sample: SampleMore) -> Generation:
        """Returns this process's part of a batch with its outcomes and its wasted samples."""
        filling = _Filling([], self._size, sample)
        filling.members = self._scored(filling, generation)
        names = list(filling.members[0].outcomes)
        tokens = _tokens_of_all(filling.members)
        left, each = self._budget * tokens, tokens * self._size / (len(filling.members) * processes())
        going = self._refilled(filling)
        while going and left >= each > 0:
            flat = self._without_signal(filling, names)
            groups = self._replaced(filling, flat, int(left // each), step) if flat else []
            if not groups:
                break
            left -= _tokens_of_all([filling.members[number] for number in filling.of_groups(groups)])
            going = self._refilled(filling)
        return replace(
            generation,
            episodes=[member.start for member in filling.members],
            prompts=[member.prompt for member in filling.members],
            rollouts=[member.rollout for member in filling.members],
            outcomes={name: [member.outcomes[name] for member in filling.members] for name in names},
            wasted=tuple(filling.wasted),
            score_seconds=filling.seconds,
        )

    def _refilled(self, filling: _Filling) -> bool:
        for _ in range(self._refills):
            rows = [[member.outcomes[reward.name].kind for reward in self.rewards] for member in filling.members]
            lost = [number for number, kinds in enumerate(rows) if "failure" in kinds]
            if not any_of(bool(lost), "the completions without a score"):
                return True
            episodes = [filling.members[number].start for number in lost]
            if not self._sampled(filling, lost, episodes, scored=not self._grouped):
                return False
            if self._grouped:
                self._score_groups(filling, {filling.group_of(number) for number in lost})
        return True

    def _without_signal(self, filling: _Filling, names: Sequence[str]) -> list[int]:
        rows = rows_of_all([member.outcomes for member in filling.members], "the scores of the groups")
        outcomes = {name: [row[name] for row in rows] for name in names}
        turns = None
        if self.advantage.spec.turns:
            turns = rows_of_all(
                [member.rollout.completion.turns for member in filling.members], "the turns of the groups"
            )
        advantages = advantages_of(outcomes, self.rewards, self._size, self.advantage, CPU, turns)
        return (~advantages.teaches.view(-1, self._size).any(dim=1)).nonzero()[:, 0].tolist()

    def _replaced(self, filling: _Filling, groups: Sequence[int], most: int, step: int) -> list[int]:
        places = rows_of_all([member.place for member in filling.members], "the prompts of the groups")
        filling.used |= {*places}
        others = self.replacements.instead([places[group * self._size] for group in groups], filling.used, step)
        chosen = [(group, place) for group, place in zip(groups, others, strict=True) if place is not None]
        new = dict(chosen[:most])
        own = filling.of_groups(list(new))
        episodes = [
            replace(self.replacements.at(new[group]), group=group)
            for group in (filling.group_of(member) for member in own)
        ]
        return list(new) if new and self._sampled(filling, own, episodes) else []

    def _sampled(
        self, filling: _Filling, numbers: Sequence[int], episodes: Sequence[Episode], *, scored: bool = True
    ) -> bool:
        filling.rounds += 1
        count = len(filling.members) * processes()
        generation = filling.sample(episodes, [filling.rounds * count + filling.first + number for number in numbers])
        if generation is None:
            return False
        if not scored:
            generation.early.drop()
        new = self._scored(filling, generation) if scored else _unscored(generation)
        for number, member in zip(numbers, new, strict=True):
            old = filling.members[number]
            filling.wasted.append(Wasted(filling.group_of(number), old.start, old.prompt, old.rollout, old.outcomes))
            filling.members[number] = member
        return True

    def _score_groups(self, filling: _Filling, groups: set[int]) -> None:
        numbers = filling.of_groups(list(groups))
        completions = [filling.members[number].rollout.completion for number in numbers]
        outcomes = self._outcomes(filling, completions, self.scoring.begin())
        for place, number in enumerate(numbers):
            own = {name: each[place] for name, each in outcomes.items()}
            filling.members[number] = replace(filling.members[number], outcomes=own)

    def _outcomes(
        self, filling: _Filling, completions: Sequence[Completion], early: EarlyCalls
    ) -> dict[str, list[Outcome]]:
        began = time.perf_counter()
        outcomes = self.scoring.score(completions, early)
        filling.seconds += time.perf_counter() - began
        return outcomes

    def _scored(self, filling: _Filling, generation: Generation) -> list[_Member]:
        outcomes = self._outcomes(filling, [rollout.completion for rollout in generation.rollouts], generation.early)
        return [
            replace(member, outcomes={name: each[place] for name, each in outcomes.items()})
            for place, member in enumerate(_unscored(generation))
        ]


def _unscored(generation: Generation) -> list[_Member]:
    return [
        _Member(*parts, {}) for parts in zip(generation.episodes, generation.prompts, generation.rollouts, strict=True)
    ]


def _tokens_of_all(members: Sequence[_Member]) -> int:
    return sum(gathered(sum(sum(member.rollout.sampled) for member in members), "the numbers of tokens"))
