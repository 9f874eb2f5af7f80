"""Estimates means and shares with their 95% intervals, also of values that are not independent."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Z95 = 1.959964  # normal quantile of a two-sided 95% interval
MOST_WIDER = 100.0  # times; where one question has all the weight, nothing is known of others
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95% interval."""

    # mean, low, high: NaN when there is nothing to average
    mean: float
    low: float
    high: float
    count: int  # how many values it is the mean of
    left_out: int = 0  # values that were abstentions, undecided or failures
    questions: int = 0  # how many different questions the values belong to


def proportion(right: Sequence[bool | None], questions: Sequence[Hashable] | None = None) -> Estimate:
    """Returns the share of True among the values that are not None, with the interval of `share_of`."""
    return share_of([None if value is None else float(value) for value in right], questions)


def share_of(values: Sequence[float | None], questions: Sequence[Hashable] | None = None) -> Estimate:
    """Returns the mean of values between 0 and 1 with a Wilson score interval at the effective sample size.

    Values of one question are not independent. With N values of variance v, n_q of them of question q, and m = sum
    n_q^2 / N, the effective sample size is

        mean (1 - mean) / SE^2, at most N,  SE^2 = (v / N) (1 + (m - 1) r)

    with r the correlation within questions. The factor is the design effect of Kish (Survey Sampling, 1965); r is
    estimated by the analysis of variance (Donner, International Statistical Review 54, 1986), and the size goes into
    Wilson's interval as in Saha, Miller and Wang (International Journal of Biostatistics 12, 2016). For few questions
    it is multiplied by (z / t)^2, t with N / m - 1 degrees of freedom (Korn and Graubard, Survey Methodology 24, 1998).

    Greedy answers to one question are all right or all wrong: r = 1. Where all values are equal r is unknown, and 1 is
    taken. Without repeated questions this is Wilson's interval of N values.

    `values`: None is left out. `questions`: of each value; None: all different.
    """
    spread = _spread(values, questions)
    left_out = len(values) - spread.count
    if spread.count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, left_out)
    mean = min(max(spread.mean, 0.0), 1.0)  # a rounding error outside would have no interval
    error = spread.variance / spread.independent
    effective = min(mean * (1 - mean) / error, spread.count) if error > 0 else spread.independent
    low, high = _wilson(mean, effective / spread.wider**2)
    return Estimate(mean, low, high, spread.count, left_out, spread.questions)


def mean_of(values: Sequence[float | None], questions: Sequence[Hashable] | None = None) -> Estimate:
    """Returns the mean of the values that are not None, with its normal interval; `questions` are those of `share_of`.

    With repeated questions, the standard error has the design effect of `share_of`, and the interval is Student's.
    """
    spread = _spread(values, questions)
    left_out = len(values) - spread.count
    if spread.count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, left_out)
    if spread.questions < 2:  # one tells nothing about others
        return Estimate(spread.mean, math.nan, math.nan, spread.count, left_out, spread.questions)
    sample = spread.variance * spread.count / (spread.count - 1)
    half = Z95 * spread.wider * math.sqrt(sample / spread.independent)
    return Estimate(spread.mean, spread.mean - half, spread.mean + half, spread.count, left_out, spread.questions)


@dataclass(frozen=True, slots=True)
class _Spread:
    # mean, variance: of the values; the variance divides by their number
    mean: float
    variance: float
    count: int  # of the values
    questions: int  # that they belong to
    independent: float  # how many independent values say as much
    wider: float  # how many times as wide an interval is for few questions, t / z


def _spread(values: Sequence[float | None], questions: Sequence[Hashable] | None) -> _Spread:
    groups: dict[Hashable, list[float]] = {}
    for value, question in zip(values, range(len(values)) if questions is None else questions, strict=True):
        if value is not None:
            groups.setdefault(question, []).append(value)
    sizes = [len(group) for group in groups.values()]
    count, number = sum(sizes), len(groups)
    if count == 0:
        return _Spread(math.nan, math.nan, 0, 0, 0.0, 1.0)
    whole = math.fsum(value for group in groups.values() for value in group) / count
    squares = math.fsum((value - whole) ** 2 for group in groups.values() for value in group)
    variance = squares / count
    if number == count:
        return _Spread(whole, variance, count, number, count, 1.0)
    size = sum(size**2 for size in sizes) / count  # the mean, by value
    if number == 1:
        return _Spread(whole, variance, count, 1, 1.0, MOST_WIDER)
    means = [math.fsum(group) / len(group) for group in groups.values()]
    between = math.fsum(n * (mean - whole) ** 2 for n, mean in zip(sizes, means, strict=True)) / (number - 1)
    within = max(0.0, squares - between * (number - 1)) / (count - number)
    usual = (count - size) / (number - 1)
    both = between + (usual - 1) * within
    correlation = min(1.0, max(0.0, (between - within) / both)) if both > ROUNDING else 1.0
    wider = min(MOST_WIDER, _t95(count / size - 1) / Z95)
    return _Spread(whole, variance, count, number, count / (1 + (size - 1) * correlation), wider)


def _t95(freedom: float) -> float:
    """Returns Student's quantile of a two-sided 95% interval (Abramowitz and Stegun 26.7.5; 11% low at 1 degree)."""
    terms = (Z95, 2.3722, 2.8225, 2.5558, 1.5895)
    return sum(term / freedom**power for power, term in enumerate(terms))


def _wilson(share: float, count: float) -> tuple[float, float]:
    centre = (share + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))  # rounding leaves out 0 or 1


def mean(values: Sequence[float]) -> float:
    """Returns the mean, NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def mean_or_none(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
