"""The part of the trainer that has completions sampled, and scored as they end.

In: the prompts of a batch as token ids, and the episodes that they start. Out: token ids and log-probabilities of the
rollout backend, and completions whose scoring has begun. It joins TRL's trainer (core/trainer.py) and uses what that
has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from grpo.core.episodes import Episode, completed
from grpo.core.rollout import Rollouts, Sampled, SamplingParams
from grpo.core.score_early import EarlyCalls
from grpo.plugins.types import Completion


class SampledRollouts:
    """Samples the completions of a batch where the environment is answered once."""

    _starts: Sequence[Episode]
    _completions: Sequence[Completion]
    _begin_scoring: Callable[[], EarlyCalls]
    _early: EarlyCalls
    _seconds: dict[str, float]
    _tokenizer: Any
    _rollouts: Rollouts
    rolled_out: Callable[[Callable[[], Any]], Any]
    sampling_params: Callable[[], SamplingParams]

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[list[list[int]], list[list[float]]]:
        start = time.perf_counter()
        sampled = self.rolled_out(partial(self._sampled, prompt_ids))
        self._seconds["generate"] = time.perf_counter() - start
        return [list(s.token_ids) for s in sampled], [list(s.logprobs) for s in sampled]

    def _sampled(self, prompt_ids: list[list[int]]) -> list[Sampled]:
        """Samples a completion for each prompt and begins to score it when it ends."""
        early = self.scoring_anew()
        found: dict[int, Completion] = {}

        def ended(numbers: Sequence[int], sampled: Sequence[Sampled]) -> None:
            texts = self._tokenizer.batch_decode([list(one.token_ids) for one in sampled], skip_special_tokens=True)
            pairs = zip(numbers, texts, sampled, strict=True)
            done = [completed(self._starts[number], text, one) for number, text, one in pairs]
            found.update(zip(numbers, done, strict=True))
            early.begin(numbers, done)

        done = self._rollouts.generate(prompt_ids, self.sampling_params(), ended)
        self._completions = [found[number] for number in range(len(prompt_ids))]
        return done

    def scoring_anew(self) -> EarlyCalls:
        """Returns what begins to score the next completions; what was begun for others is given up."""
        self._early.drop()
        self._early = self._begin_scoring()
        return self._early
