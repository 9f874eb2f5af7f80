"""Measures a policy on held-out episodes: accuracy by a verifier, mean rewards, pass@k. Trains nothing.

In: a rollout backend, episodes, sampling parameters. Out: an `Evaluation` with 95% intervals. An undecided verdict or a
failed call is left out of the mean and counted beside it; neither is a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo.core.env.episodes import Episode, completed, in_groups
from grpo.core.policy.load import encode_starts
from grpo.core.rollout.turns.play import Player
from grpo.core.rollout.types import Rollouts, SamplingParams
from grpo.core.scoring.outcome import Judgement, Outcome
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
        outcomes: reward name to one outcome per completion.
    """

    accuracy: Estimate | None
    pass_at_k: Mapping[int, Estimate]
    rewards: Mapping[str, Estimate]
    completions: tuple[Completion, ...]
    verdicts: tuple[Judgement, ...]
    outcomes: Mapping[str, tuple[Outcome, ...]]

    @property
    def env_failures(self) -> tuple[str, ...]:
        """Why rollouts failed in their environment; nothing is known of these completions."""
        return tuple(str(one.info.get("failure")) for one in self.completions if one.finish_reason == "error")


def complete(
    rollouts: Rollouts,
    tokenizer: PreTrainedTokenizerBase,
    episodes: Sequence[Episode],
    params: SamplingParams,
    *,
    samples: int = 1,
    batch_size: int = 256,
    on_batch: Callable[[int], None] = lambda sampled: None,
    player: Player | None = None,
) -> list[Completion]:
    """Samples `samples` completions for each episode, those of an episode adjacent and one group.

    `rollouts` was synced with the policy. `batch_size` is in completions; `on_batch` is told after each batch how many
    completions it had. With a `player`, a completion is a rollout of several turns.
    """
    prompts = [ids for ids in encode_starts(tokenizer, episodes) for _ in range(samples)]
    starts = in_groups([episode for episode in episodes for _ in range(samples)], samples)
    # Prompts of like length share a batch, so that short ones are not padded to the longest of all.
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    done: dict[int, Completion] = {}
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        asked = [prompts[i] for i in chosen]
        if player is not None:
            played = player.play([starts[i] for i in chosen], asked, rollouts.turns(), params)
            done |= {i: one.completion for i, one in zip(chosen, played, strict=True)}
        else:
            sampled = rollouts.generate(asked, params)
            texts = tokenizer.batch_decode([s.token_ids for s in sampled], skip_special_tokens=True)
            done |= {i: completed(starts[i], text, s) for i, text, s in zip(chosen, texts, sampled, strict=True)}
        on_batch(len(chosen))
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
    outcomes = {name: tuple(found) for name, found in (score(completions) if score else {}).items()}
    return Evaluation(
        accuracy=(proportion(right) if samples == 1 else share_of(right, samples)) if judge else None,
        pass_at_k={k: _pass_at_k(right, samples, k) for k in _powers_up_to(samples)} if judge else {},
        rewards={name: mean_of([outcome.score for outcome in found], samples) for name, found in outcomes.items()},
        completions=tuple(completions),
        verdicts=verdicts,
        outcomes=outcomes,
    )


def proportion(right: Sequence[bool | None]) -> Estimate:
    """Share of True among the independent values that are not None, with its Wilson score interval."""
    known = [value for value in right if value is not None]
    count, left_out = len(known), len(right) - len(known)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, left_out)
    share = sum(known) / count
    return Estimate(share, *_wilson(share, count), count, left_out)


def share_of(values: Sequence[float | None], cluster: int = 1) -> Estimate:
    """Mean of shares between 0 and 1, with a Wilson interval at the effective sample size share(1 - share) / SE^2.

    Unlike a normal interval it stays inside 0 to 1 and does not vanish when all values are equal; then the number of
    clusters is the sample size (Korn and Graubard, 1998, who put this size into another interval).

    Args:
        values: None is left out.
        cluster: how many neighbours are samples of one episode, and so not independent.
    """
    mean, error, clusters, count = _mean_and_error(values, cluster)
    left_out = len(values) - count
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, left_out)
    mean = min(mean, 1.0)  # a rounding error above would have no interval
    effective = mean * (1 - mean) / error**2 if error > 0 else clusters
    return Estimate(mean, *_wilson(mean, min(effective, count)), count, left_out)


def mean_of(values: Sequence[float | None], cluster: int = 1) -> Estimate:
    """Mean of the values that are not None, with its normal interval; `cluster` is that of `share_of`."""
    mean, error, _, count = _mean_and_error(values, cluster)
    return Estimate(mean, mean - Z95 * error, mean + Z95 * error, count, len(values) - count)


def _mean_and_error(values: Sequence[float | None], cluster: int) -> tuple[float, float, int, int]:
    """Returns the mean, its standard error (robust to clusters), the number of clusters and of values, without None.

    SE^2 = G / (G - 1) * sum over clusters of (sum of (x - mean))^2 / N^2; for clusters of one, the usual s^2 / N. With
    fewer than two clusters it is NaN.
    """
    count = sum(value is not None for value in values)
    if count == 0:
        return math.nan, math.nan, 0, 0
    mean = math.fsum(value for value in values if value is not None) / count
    groups = [[v for v in values[i : i + cluster] if v is not None] for i in range(0, len(values), cluster)]
    totals = [math.fsum(value - mean for value in group) for group in groups if group]
    clusters = len(totals)
    if clusters < 2:
        return mean, math.nan, clusters, count
    squares = math.fsum(total**2 for total in totals) * clusters / (clusters - 1)
    return mean, math.sqrt(squares) / count, clusters, count


def _wilson(share: float, count: float) -> tuple[float, float]:
    """Returns the ends of the Wilson score interval of a share among `count` values."""
    centre = (share + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))  # rounding leaves out 0 or 1


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
    return share_of(shares)


def _powers_up_to(samples: int) -> list[int]:
    """1, 2, 4, ... and the number itself."""
    return sorted({*(2**i for i in range(samples.bit_length()) if 2**i <= samples), samples})
