"""Accumulates evidence against a hypothesis as e-values, which may be checked after every step.

A test by betting (Waudby-Smith and Ramdas, JRSS B 2024): a stake is bet against "the mean is at most the bound", and
where that holds, the wealth is a supermartingale. By Ville's inequality it then ever reaches 1 / p with a chance of p
at most, however often it is looked at. So that a change late in a run is found too, the stake is paid in over time,
1 / (t (t + 1)) of it in step t, and each part is bet from its own step on; the parts sum up to 1, and so the chance is
the same.
"""

from __future__ import annotations

from collections.abc import Sequence

SHARES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of the wealth, bet in parallel: small ones find small changes


class TestMartingale:
    """The wealth of a bet that means are above their bounds."""

    def __init__(self) -> None:
        self._wealth = [0.0] * len(SHARES)
        self._steps = 0

    def add(self, values: Sequence[float], bound: float) -> float:
        """Bets on the values of one step; returns the wealth.

        `values`: each between 0 and 1. `bound`: of their mean given everything before them, where there is nothing to
        find; above 0. It is to be known before the values are.
        """
        self._steps += 1
        paid = 1 / (self._steps * (self._steps + 1))
        for place, share in enumerate(SHARES):
            wealth = self._wealth[place] + paid
            for value in values:
                wealth *= 1 + share * (value - bound) / bound
            self._wealth[place] = wealth
        return sum(self._wealth) / len(SHARES)
