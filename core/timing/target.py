"""The step at which an accuracy will be reached: shares of right completions so far in, an interval of steps out.

A policy learns slowly at first, faster, and slowly again, and nobody knows where its ceiling is. So the log-odds of the
accuracy are followed as a level with a slope, where both wander: over as many steps as were seen, the slope by about as
much as learning usually brings, and back to half of that. (A local linear trend, filtered as by Kalman 1960; Harvey,
Forecasting, Structural Time Series Models and the Kalman Filter, 1989.) From there ways on are drawn, with the noise
that the accuracies of steps have had until now, and of each is read off when the mean of five steps first is as high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

USUAL, SPREAD = 1.0, 1.5  # log-odds that learning usually brings over as many steps as were seen; how far that varies
SLOPE = 1.2  # log-odds by which the slope, over as many steps, may come to be another one
FADES, LATER = 0.9, 0.5  # the slope goes back, from step to step, to this share of the usual one
LEVEL = 0.3  # log-odds by which the level wanders beside it
WINDOW = 5  # steps whose mean has to be as high
SEEN = 200  # steps that are looked at
AHEAD = 10  # times as many steps are looked ahead
DRAWS = 2000
INSIDE = (0.05, 0.95)
NEVER = 1e12
CHANCE = 0.02  # no accuracy is taken to be nearer to 0 or 1, where log-odds have no end


@dataclass(frozen=True, slots=True)
class Range:
    """An interval; `high` is infinite where it has no end."""

    low: float
    high: float


def reaches(known: Sequence[tuple[int, float]], completions: int, target: float) -> Range | None:
    """Returns the steps within which an accuracy is reached; None where that is not in sight.

    Nine of ten ways get there within them. Where a twentieth never does, they have no end, and where half do not, it is
    not in sight.

    Args:
        known: steps, and the share of their completions that was right.
        completions: of each step.
        target: between 0 and 1.
    """
    if not any(share for _, share in known):
        return None  # nothing was right yet, so there is no pace
    steps, right = [step for step, _ in known], np.array([share for _, share in known])
    means = np.convolve(right, np.full(WINDOW, 1 / WINDOW), "valid")
    if (reached := np.flatnonzero(means >= target)).size:
        return Range(*[float(steps[reached[0] + WINDOW // 2])] * 2)
    right = right[-SEEN:]
    noise = _noise(right, completions)
    hits = _hits(*_followed(right, noise), right, noise, target)
    low, middle, high = np.quantile(hits, [INSIDE[0], 0.5, INSIDE[1]], method="nearest")
    if middle >= NEVER:
        return None
    return Range(steps[-1] + float(low), math.inf if high >= NEVER else steps[-1] + float(high))


def _noise(right: Any, completions: int) -> float:
    """Returns the variance of a step's accuracy over p (1 - p): about a straight line, no less than by chance."""
    steps = np.arange(len(right), dtype=float)
    line = np.polyval(np.polyfit(steps, right, min(1, len(right) - 1)), steps)
    spread = np.clip(line * (1 - line), CHANCE * (1 - CHANCE), None)
    found = float(((right - line) ** 2 / spread).sum()) / max(len(right) - 2, 1)
    return max(1 / completions, found)


def _scales(count: int) -> tuple[float, float]:
    """Returns by how much level and slope wander in a step, by the number of steps that were seen."""
    return LEVEL / math.sqrt(count), SLOPE / count / math.sqrt(count)


def _followed(right: Any, noise: float) -> tuple[Any, Any]:
    """Returns level and slope of the log-odds after the last step, and their covariance."""
    of_level, of_slope = _scales(len(right))
    move, wander = np.array([[1.0, 1.0], [0.0, 1.0]]), np.diag([of_level**2, of_slope**2])
    odds = np.log(np.clip(right, CHANCE, 1 - CHANCE) / np.clip(1 - right, CHANCE, 1 - CHANCE))
    now, spread = np.array([odds[0], USUAL / len(right)]), np.diag([4.0, (SPREAD / len(right)) ** 2])
    for number, seen in enumerate(odds):
        if number:
            now, spread = move @ now, move @ spread @ move.T + wander
        chance = min(max(1 / (1 + math.exp(-now[0])), CHANCE), 1 - CHANCE)
        gain = spread[:, 0] / (spread[0, 0] + noise / (chance * (1 - chance)))
        now, spread = now + gain * (seen - now[0]), spread - np.outer(gain, spread[0])
    return now, (spread + spread.T) / 2


def _hits(now: Any, spread: Any, right: Any, noise: float, target: float) -> Any:
    """Returns after how many more steps each of DRAWS ways gets there, [DRAWS], NEVER for those that do not."""
    random = np.random.default_rng(0)
    of_level, of_slope = _scales(len(right))
    usual = LATER * USUAL / len(right)
    level, slope = random.multivariate_normal(now, spread, DRAWS, method="svd").T
    last = [np.full(DRAWS, share) for share in right[1 - WINDOW :]]
    hits = np.full(DRAWS, NEVER)
    for step in range(1, AHEAD * len(right) + 1):
        level = level + slope + random.normal(0, of_level, DRAWS)
        slope = usual + FADES * (slope - usual) + random.normal(0, of_slope, DRAWS)
        chance = 1 / (1 + np.exp(-np.clip(level, -30, 30)))
        seen = chance + random.normal(0, 1, DRAWS) * np.sqrt(noise * chance * (1 - chance))
        last = [*last, np.clip(seen, 0, 1)][-WINDOW:]
        here = (hits == NEVER) & (np.mean(last, axis=0) >= target)
        hits[here] = step - WINDOW // 2
        if (hits < NEVER).mean() > (1 + INSIDE[1]) / 2:
            break
    return hits
