"""Samples the rollouts of a batch and starts scoring each one as it ends. Other samplers wrap `PolicySampler`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from grpo.core.env.episodes import Episode
from grpo.core.env.prompts import encode_episodes
from grpo.core.policy.chat_template import texts_of
from grpo.core.processes.rank import rank
from grpo.core.rollout.draws import keys_of
from grpo.core.rollout.sync.fault import faulty_anywhere
from grpo.core.rollout.synced import SyncedRollouts
from grpo.core.rollout.turns.play import Plays, Trajectory, completed
from grpo.core.rollout.types import PromptIds, Rollouts, Sampled, SamplingParams
from grpo.core.scoring.early import EarlyCalls
from grpo.core.train.types import Fill, Generation, Sampler
from grpo.plugins.types import Completion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Begin = Callable[[Sequence[int], Sequence[Completion]], None]


@dataclass(eq=False)
class PolicySampler(Sampler):
    """Samples from the policy as it is now."""

    rollouts: SyncedRollouts
    # each environment's name to what plays its rollouts, None where it is answered once
    players: Mapping[str, Plays | None]
    tokenizer: PreTrainedTokenizerBase
    params: SamplingParams  # how tokens are chosen; the length is that of one turn
    begin_scoring: Callable[[], EarlyCalls]  # returns what begins to score the completions of a batch as they end
    # of the run, where each completion can have random numbers of its own; None where the backend draws
    seed: int | None
    fill: Fill | None = None  # fills a batch up within its step, or None where it is trained on as it is sampled

    def next(self, episodes: Sequence[Episode], step: int, *, again: bool = False) -> Generation:
        """Syncs the weights, samples, and refills the batch."""
        first = rank() * len(episodes)
        self._number(step, range(first, first + len(episodes)))
        return self.filled(self.synced(episodes, encode_episodes(self.tokenizer, episodes), again=again), step)

    def filled(self, generation: Generation, step: int, *, unsynced: bool = False) -> Generation:
        """Fills a batch up; with `unsynced`, from the weights of the last sync."""
        if self.fill is None:
            return generation

        def more(episodes: Sequence[Episode], numbers: Sequence[int]) -> Generation | None:
            self._number(step, numbers)
            prompts = encode_episodes(self.tokenizer, episodes)
            return self._more_unsynced(episodes, prompts) if unsynced else self.synced(episodes, prompts, again=False)

        return self.fill(generation, step, more)

    def synced(self, episodes: Sequence[Episode], prompts: PromptIds, *, again: bool) -> Generation:
        (generation, early), metrics = self.rollouts.roll_out(partial(self._sampled, episodes, prompts), again=again)
        return Generation(episodes, prompts, generation, early, metrics=metrics, waiting=early.waiting())

    def synced_unless(self, kept: Generation | None, episodes: Sequence[Episode], prompts: PromptIds) -> Generation:
        """Syncs all weights, and samples where this process has nothing to keep."""
        if kept is None:
            return self.synced(episodes, prompts, again=True)
        _, metrics = self.rollouts.roll_out(lambda rollouts: None, again=True)
        return replace(kept, metrics=metrics)

    def unsynced(self, episodes: Sequence[Episode], prompts: PromptIds) -> Generation:
        """Samples with the weights of the last sync."""
        generation, early = self._sampled(episodes, prompts, self.rollouts.rollouts)
        return Generation(episodes, prompts, generation, early, waiting=early.waiting())

    def scoring(self, generation: Generation) -> Generation:
        """Starts scoring a whole batch that was not scored."""
        early = self.begin_scoring()
        early.begin(range(len(generation.rollouts)), [rollout.completion for rollout in generation.rollouts])
        return replace(generation, early=early)

    def _number(self, step: int, numbers: Iterable[int]) -> None:
        if self.seed is not None:
            self.params = replace(self.params, keys=keys_of(self.seed, step, numbers))

    def _more_unsynced(self, episodes: Sequence[Episode], prompts: PromptIds) -> Generation | None:
        """Samples with the weights of the last sync; None where an engine of any process lost them."""
        generation: Generation | None = None
        error: Exception | None = None
        try:
            generation = self.unsynced(episodes, prompts)
        except Exception as raised:
            error = raised
        if not faulty_anywhere(error, "the samples"):
            return generation
        if generation is not None:
            generation.early.drop()
        return None

    def _sampled(
        self, episodes: Sequence[Episode], prompts: PromptIds, rollouts: Rollouts
    ) -> tuple[list[Trajectory], EarlyCalls]:
        early = self.begin_scoring()
        trajectories: dict[int, Trajectory] = {}
        try:
            for name, player in self.players.items():
                places = [place for place, episode in enumerate(episodes) if episode.env == name]
                if places:
                    own, asked = [episodes[i] for i in places], [prompts[i] for i in places]
                    params, begin = self.params.of(places), partial(_begin, early, places)
                    if player is None:
                        done = self._answers(rollouts, own, asked, params, begin)
                    else:
                        done = player.play(own, asked, rollouts.turns(), params, on_ended=partial(_begin_one, begin))
                    trajectories |= dict(zip(places, done, strict=True))
        except BaseException:
            early.drop()
            raise
        return [trajectories[place] for place in range(len(episodes))], early

    def _answers(
        self, rollouts: Rollouts, episodes: Sequence[Episode], prompts: PromptIds, params: SamplingParams, begin: Begin
    ) -> list[Trajectory]:
        trajectories: dict[int, Trajectory] = {}

        def ended(numbers: Sequence[int], sampled: Sequence[Sampled]) -> None:
            texts = texts_of(self.tokenizer, [sample.token_ids for sample in sampled])
            for number, text, sample in zip(numbers, texts, sampled, strict=True):
                completion = completed(episodes[number], text, sample)
                trajectories[number] = Trajectory(
                    sample.token_ids, sample.logprobs, (True,) * len(sample.token_ids), completion
                )
            begin(numbers, [trajectories[number].completion for number in numbers])

        rollouts.generate(prompts, params, ended)
        return [trajectories[number] for number in range(len(prompts))]


def _begin(early: EarlyCalls, places: Sequence[int], numbers: Sequence[int], completions: Sequence[Completion]) -> None:
    early.begin([places[number] for number in numbers], completions)


def _begin_one(begin: Begin, number: int, completion: Completion) -> None:
    begin([number], [completion])
