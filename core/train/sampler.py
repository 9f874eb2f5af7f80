"""The part of the trainer that has completions sampled, and scored as they end.

In: the prompts of a batch as token ids, and the episodes that they start. Out: one `Trajectory` each, whose scoring
has begun. It joins TRL's trainer (core/train/trainer.py) and uses what that has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from grpo.core.env.episodes import Episode
from grpo.core.rollout.turns.play import Player, Trajectory, completed
from grpo.core.rollout.types import Rollouts, Sampled, SamplingParams
from grpo.core.scoring.early import EarlyCalls
from grpo.plugins.types import Completion

Begin = Callable[[Sequence[int], Sequence[Completion]], None]


@dataclass(frozen=True, slots=True)
class Generation:
    """The rollouts of one batch.

    Attributes:
        prompts: their token ids.
        rollouts: one for each prompt.
        early: the calls of rewards that were begun for them.
    """

    prompts: Sequence[Sequence[int]]
    rollouts: Sequence[Trajectory]
    early: EarlyCalls


class SampledRollouts:
    """Samples the rollouts of a batch from the policy as it is now."""

    _players: Mapping[str, Player | None]
    _starts: Sequence[Episode]
    _completions: Sequence[Completion]
    _begin_scoring: Callable[[], EarlyCalls]
    _early: EarlyCalls
    _seconds: dict[str, float]
    _tokenizer: Any
    _rollouts: Rollouts
    rolled_out: Callable[[Callable[[], Generation]], Generation]
    sampling_params: Callable[[], SamplingParams]

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[list[list[int]], list[list[float]]]:
        found = self.rollouts_of(prompt_ids)
        return [list(one.token_ids) for one in found], [list(one.logprobs) for one in found]

    def rollouts_of(self, prompt_ids: list[list[int]]) -> Sequence[Trajectory]:
        """Returns the rollouts of the present batch, and keeps what rewards see of them."""
        start = time.perf_counter()
        generation = self.generation_of(prompt_ids)
        self._early = generation.early
        self._completions = [one.completion for one in generation.rollouts]
        self._seconds["generate"] = time.perf_counter() - start
        return generation.rollouts

    def generation_of(self, prompt_ids: list[list[int]]) -> Generation:
        """Samples the present batch."""
        return self.rolled_out(partial(self.generate, self._starts, prompt_ids))

    def generate(self, starts: Sequence[Episode], prompt_ids: Sequence[Sequence[int]]) -> Generation:
        """Samples with what the rollout backend serves, and begins to score each rollout when it ends."""
        early = self._begin_scoring()
        found: dict[int, Trajectory] = {}
        try:
            for name, player in self._players.items():
                places = [place for place, episode in enumerate(starts) if episode.env == name]
                if places:
                    begin = partial(_begin, early, places)
                    done = self._rolled(player, [starts[i] for i in places], [prompt_ids[i] for i in places], begin)
                    found |= dict(zip(places, done, strict=True))
        except BaseException:
            early.drop()
            raise
        return Generation(prompt_ids, [found[place] for place in range(len(starts))], early)

    def _rolled(
        self, player: Player | None, starts: Sequence[Episode], prompt_ids: Sequence[Sequence[int]], begin: Begin
    ) -> list[Trajectory]:
        """Samples the rollouts of one environment; `begin` is told of each when it ends."""
        if player is None:
            return self._answer(starts, prompt_ids, begin)
        return player.play(
            starts,
            prompt_ids,
            self._rollouts.turns(),
            self.sampling_params(),
            on_ended=lambda number, completion: begin([number], [completion]),
        )

    def _answer(self, starts: Sequence[Episode], prompt_ids: Sequence[Sequence[int]], begin: Begin) -> list[Trajectory]:
        """Samples one answer to each prompt of an environment that is not stepped."""
        found: dict[int, Trajectory] = {}

        def ended(numbers: Sequence[int], sampled: Sequence[Sampled]) -> None:
            texts = self._tokenizer.batch_decode([list(one.token_ids) for one in sampled], skip_special_tokens=True)
            for number, text, one in zip(numbers, texts, sampled, strict=True):
                completion = completed(starts[number], text, one)
                found[number] = Trajectory(one.token_ids, one.logprobs, (True,) * len(one.token_ids), completion)
            begin(numbers, [found[number].completion for number in numbers])

        self._rollouts.generate(prompt_ids, self.sampling_params(), ended)
        return [found[number] for number in range(len(prompt_ids))]


def _begin(early: EarlyCalls, places: Sequence[int], numbers: Sequence[int], completions: Sequence[Completion]) -> None:
    """Begins to score completions of one environment, whose places in the batch are known."""
    early.begin([places[number] for number in numbers], completions)
