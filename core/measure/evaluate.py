"""Measures a policy on held-out episodes: accuracy by a verifier, mean rewards, pass@k, with 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo.core.env.episodes import Episode, in_groups
from grpo.core.env.prompts import encode_episodes
from grpo.core.policy.chat_template import texts_of
from grpo.core.rollout.turns.play import Plays, completed
from grpo.core.rollout.types import Rollouts, SamplingParams
from grpo.core.scoring.outcome import Judgement, Outcome
from grpo.core.text.stats import Estimate, mean_of, proportion, share_of
from grpo.plugins.types import Completion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Evaluation:
    accuracy: Estimate | None  # share of single answers that are right, or None without a verifier
    pass_at_k: Mapping[int, Estimate]  # k to the estimated share of episodes with a right answer among k samples
    rewards: Mapping[str, Estimate]  # reward name to its mean score
    completions: tuple[Completion, ...]  # everything that was sampled, the samples of an episode adjacent
    verdicts: tuple[Judgement, ...]  # one per completion, or empty
    outcomes: Mapping[str, tuple[Outcome, ...]]  # reward name to one outcome per completion

    @property
    def env_failures(self) -> tuple[str, ...]:
        """Why rollouts failed in their environment; nothing is known of these completions."""
        return tuple(
            str(completion.info.get("failure"))
            for completion in self.completions
            if completion.finish_reason == "error"
        )


def complete(
    rollouts: Rollouts,
    tokenizer: PreTrainedTokenizerBase,
    episodes: Sequence[Episode],
    params: SamplingParams,
    *,
    samples: int = 1,
    batch_size: int = 256,
    on_batch: Callable[[int], None] = lambda sampled: None,
    player: Plays | None = None,
) -> list[Completion]:
    """Samples `samples` completions for each episode, those of an episode adjacent and one group.

    `rollouts` was synced with the policy. `batch_size`: completions; `on_batch` gets those of each batch. With a
    `player`, a completion is a rollout of several turns.
    """
    prompts = [ids for ids in encode_episodes(tokenizer, episodes) for _ in range(samples)]
    starts = in_groups([episode for episode in episodes for _ in range(samples)], samples)
    # Prompts of like length share a batch, so that short ones are not padded to the longest of all.
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    done: dict[int, Completion] = {}
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        asked = [prompts[i] for i in chosen]
        if player is not None:
            played = player.play([starts[i] for i in chosen], asked, rollouts.turns(), params)
            done |= {i: rollout.completion for i, rollout in zip(chosen, played, strict=True)}
        else:
            sampled = rollouts.generate(asked, params)
            texts = texts_of(tokenizer, [s.token_ids for s in sampled])
            done |= {i: completed(starts[i], text, s) for i, text, s in zip(chosen, texts, sampled, strict=True)}
        on_batch(len(chosen))
    return [done[i] for i in range(len(prompts))]


def evaluation_of(
    completions: Sequence[Completion],
    samples: int,
    questions: Sequence[Hashable],
    judge: Callable[[Sequence[Completion]], Sequence[Judgement]] | None,
    score: Callable[[Sequence[Completion]], Mapping[str, Sequence[Outcome]]] | None,
) -> Evaluation:
    """Judges and scores completions and summarises both.

    `samples`: of each episode. `questions`: of each episode, equal where they ask the same. `judge`: gives one
    judgement per completion; `score`: one outcome per completion and reward; both may be None.
    """
    verdicts = tuple(judge(completions)) if judge else ()
    right = [judgement.verdict.ok if judgement.verdict else None for judgement in verdicts]
    ks = sorted({*(2**i for i in range(samples.bit_length())), samples})  # 1, 2, 4, ... and the number itself
    asked = [question for question in questions for _ in range(samples)]
    outcomes = {name: tuple(scored) for name, scored in (score(completions) if score else {}).items()}
    return Evaluation(
        accuracy=proportion(right, asked) if judge else None,
        pass_at_k={k: _pass_at_k(right, samples, k, questions) for k in ks} if judge else {},
        rewards={name: mean_of([outcome.score for outcome in scored], asked) for name, scored in outcomes.items()},
        completions=tuple(completions),
        verdicts=verdicts,
        outcomes=outcomes,
    )


def _pass_at_k(right: Sequence[bool | None], samples: int, k: int, questions: Sequence[Hashable]) -> Estimate:
    """Returns unbiased pass@k (Chen et al. 2021, eq. 1) over episodes with at least k decided samples."""
    shares: list[float | None] = []
    for first in range(0, len(right), samples):
        decided = [value for value in right[first : first + samples] if value is not None]
        n, c = len(decided), sum(decided)
        shares.append(1.0 - math.comb(n - c, k) / math.comb(n, k) if n >= k else None)
    return share_of(shares, questions)
