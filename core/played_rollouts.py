"""The part of the trainer that plays rollouts of several turns, in the place that TRL has for it.

In: the episodes of a batch, and what samples from the policy. Out: token ids with a mask of those that the policy
chose; TRL carries it into the loss as its tool mask. It joins TRL's trainer (core/trainer.py) and uses what that has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from grpo.core.episodes import Episode
from grpo.core.plan import Plan
from grpo.core.policy import encode_starts
from grpo.core.rollout import Rollouts, SamplingParams
from grpo.core.score_early import EarlyCalls
from grpo.core.turns import Player, Trajectory
from grpo.plugins.types import Completion


class PlayedRollouts:
    """Plays the rollouts of a batch where the environment is stepped."""

    _plan: Plan
    _player: Player | None
    _starts: Sequence[Episode]
    _completions: Sequence[Completion]
    _played: Sequence[Trajectory]
    _seconds: dict[str, float]
    _tokenizer: Any
    eos_token_ids: Sequence[int]
    _rollouts: Rollouts
    scoring_anew: Callable[[], EarlyCalls]
    rolled_out: Callable[[Callable[[], Any]], Any]

    def play(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        """Plays a rollout for each prompt of the batch; the signature is that of TRL's `rollout_func`."""
        assert self._player is not None
        start = time.perf_counter()
        prompt_ids = encode_starts(self._tokenizer, self._starts)
        params = self.sampling_params()
        self._played = self.rolled_out(partial(self._play, self._player, prompt_ids, params))
        self._seconds["generate"] = time.perf_counter() - start
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [list(one.token_ids) for one in self._played],
            "logprobs": [list(one.logprobs) for one in self._played],
            "env_mask": [[int(chosen) for chosen in one.sampled] for one in self._played],
        }

    def _play(self, player: Player, prompt_ids: list[list[int]], params: SamplingParams) -> list[Trajectory]:
        """Plays a rollout from each prompt and begins to score it when it ends."""
        early = self.scoring_anew()
        played = player.play(
            self._starts,
            prompt_ids,
            self._rollouts.generate,
            params,
            on_ended=lambda number, completion: early.begin([number], [completion]),
        )
        self._completions = [one.completion for one in played]
        return played

    def sampling_params(self) -> SamplingParams:
        """Returns how tokens are chosen in training; the length is that of one turn."""
        rollout = self._plan.config.rollout
        assert rollout.max_completion_length is not None
        return SamplingParams(
            max_tokens=rollout.max_completion_length,
            eos_ids=tuple(self.eos_token_ids),
            pad_id=self._tokenizer.pad_token_id,
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            min_p=rollout.min_p,
        )
