"""The part of the trainer that plays rollouts of several turns, in the place that TRL has for it.

In: the episodes of a batch, and what samples from the policy. Out: token ids with a mask of those that the policy
chose; TRL carries it into the loss as its tool mask. It joins TRL's trainer (core/train/trainer.py) and uses what that
has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grpo.core.env.episodes import Episode
from grpo.core.env.prompts import encode_starts
from grpo.core.plan import Plan
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.rollout.types import SamplingParams


class PlayedRollouts:
    """Plays the rollouts of a batch where the environment is stepped."""

    _plan: Plan
    _starts: Sequence[Episode]
    _tokenizer: Any
    eos_token_ids: Sequence[int]
    rollouts_of: Callable[[list[list[int]]], Sequence[Trajectory]]

    def play(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        """Plays a rollout for each prompt of the batch; the signature is that of TRL's `rollout_func`."""
        prompt_ids = encode_starts(self._tokenizer, self._starts)
        played = self.rollouts_of(prompt_ids)
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [list(one.token_ids) for one in played],
            "logprobs": [list(one.logprobs) for one in played],
            "env_mask": [[int(chosen) for chosen in one.sampled] for one in played],
        }

    def sampling_params(self) -> SamplingParams:
        """Returns how tokens are chosen in training; the length is that of one turn."""
        rollout = self._plan.config.rollout
        return SamplingParams(
            max_tokens=rollout.max_completion_length,
            eos_ids=tuple(self.eos_token_ids),
            pad_id=self._tokenizer.pad_token_id,
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            min_p=rollout.min_p,
        )
