"""Means and shares with their 95% intervals: values in, estimates out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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


def mean(values: Sequence[float]) -> float:
    """Returns the mean, NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def mean_or_none(values: Sequence[float]) -> float | None:
    """Returns the mean, None of nothing."""
    return math.fsum(values) / len(values) if values else None
