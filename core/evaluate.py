"""Measures a policy on held-out episodes: accuracy by a verifier, mean rewards, pass@k. Trains nothing.

In: a model, episodes, sampling parameters. Out: an `Evaluation` with 95% intervals. An undecided verdict or a failed
call is left out of the mean and counted beside it; neither is a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo.core.episodes import Episode, completed
from grpo.core.policy import encode_prompts
from grpo.core.rollout import SamplingParams, sample
from grpo.core.score_outcome import Judgement, Outcome
from grpo.plugins.types import Completion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Z95 = 1.959964  # normal quantile of a two-sided 95% interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95% interval.

    Attributes:
        mean, low, high: NaN when there is nothing to average.
        count: how many values it is the mean of.
        left_out: values that were abstentions, undecided or failures.
    """

    mean: float
    low: float
    high: float
    count: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured.

    Attributes:
        accuracy: share of single answers that are right, or None without a verifier.
        pass_at_k: k to the estimated share of episodes with a right answer among k samples.
        rewards: reward name to its mean score.
        completions: everything that was sampled, the samples of an episode adjacent.
        verdicts: one per completion, or empty.
    """

    accuracy: Estimate | None
    pass_at_k: Mapping[int, Estimate]
    rewards: Mapping[str, Estimate]
    completions: tuple[Completion, ...]
    verdicts: tuple[Judgement, ...]


def complete(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    episodes: Sequence[Episode],
    params: SamplingParams,
    *,
    samples: int = 1,
    batch_size: int = 256,
) -> list[Completion]:
    """Samples `samples` completions for each episode, those of an episode adjacent."""
    prompts = [ids for ids in encode_prompts(tokenizer, [e.prompt for e in episodes]) for _ in range(samples)]
    starts = [episode for episode in episodes for _ in range(samples)]
    # Prompts of like length share a batch, so that short ones are not padded to the longest of all.
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    done: dict[int, Completion] = {}
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        sampled = sample(model, [prompts[i] for i in chosen], params)
        texts = tokenizer.batch_decode([s.token_ids for s in sampled], skip_special_tokens=True)
        done |= {i: completed(starts[i], text, s) for i, text, s in zip(chosen, texts, sampled, strict=True)}
    return [done[i] for i in range(len(prompts))]


def evaluation_of(
    completions: Sequence[Completion],
    samples: int,
    judge: Callable[[Sequence[Completion]], Sequence[Judgement]] | None,
    score: Callable[[Sequence[Completion]], Mapping[str, Sequence[Outcome]]] | None,
) -> Evaluation:
    """Judges and scores completions and summarises both.

    Args:
        completions: the samples of an episode adjacent.
        samples: how many each episode has.
        judge: gives one judgement per completion, or None.
        score: gives one outcome per completion and reward, or None.
    """
    verdicts = tuple(judge(completions)) if judge else ()
    right = [_right(judgement) for judgement in verdicts]
    rewards = score(completions) if score else {}
    return Evaluation(
        accuracy=proportion(right) if judge else None,
        pass_at_k={k: _pass_at_k(right, samples, k) for k in _powers_up_to(samples)} if judge else {},
        rewards={name: mean_of([outcome.score for outcome in outcomes]) for name, outcomes in rewards.items()},
        completions=tuple(completions),
        verdicts=verdicts,
    )


def proportion(right: Sequence[bool | None]) -> Estimate:
    """Share of True among the values that are not None, with its Wilson score interval."""
    known = [value for value in right if value is not None]
    count, left_out = len(known), len(right) - len(known)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, left_out)
    share = sum(known) / count
    centre = (share + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half), count, left_out)


def mean_of(values: Sequence[float | None]) -> Estimate:
    """Mean of the values that are not None, with its normal interval."""
    known = [value for value in values if value is not None]
    count, left_out = len(known), len(values) - len(known)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, left_out)
    mean = math.fsum(known) / count
    variance = math.fsum((value - mean) ** 2 for value in known) / max(count - 1, 1)
    half = Z95 * math.sqrt(variance / count)
    return Estimate(mean, mean - half, mean + half, count, left_out)


def _right(judgement: Judgement) -> bool | None:
    return judgement.verdict.ok if judgement.verdict is not None else None


def _pass_at_k(right: Sequence[bool | None], samples: int, k: int) -> Estimate:
    """Unbiased pass@k, 1 - C(n - c, k) / C(n, k), averaged over episodes (Chen et al. 2021, arXiv 2107.03374, eq. 1).

    Episodes with fewer than k decided samples are left out.
    """
    shares: list[float | None] = []
    for first in range(0, len(right), samples):
        decided = [value for value in right[first : first + samples] if value is not None]
        n, c = len(decided), sum(decided)
        shares.append(1.0 - math.comb(n - c, k) / math.comb(n, k) if n >= k else None)
    return mean_of(shares)


def _powers_up_to(samples: int) -> list[int]:
    """1, 2, 4, ... and the number itself."""
    return sorted({*(2**i for i in range(samples.bit_length()) if 2**i <= samples), samples})
