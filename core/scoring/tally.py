"""Counts verdicts, and computes moments of one reward's outcomes, for the tables that commands print."""

from __future__ import annotations

import math
from collections.abc import Iterable

from grpo.core.scoring.outcome import Judgement, Outcome

_LARGE = 1e6  # numbers from here on are shown with an exponent


def verdict_counts(judgements: Iterable[Judgement]) -> dict[str, int]:
    """Counts what a verifier said, by kind; the kinds are disjoint."""
    verdicts = [judgement.verdict for judgement in judgements]
    decisions = [verdict.ok for verdict in verdicts if verdict is not None]
    return {
        "right": decisions.count(True),
        "wrong": decisions.count(False),
        "undecided": decisions.count(None),
        "failed": verdicts.count(None),
    }


class ScoreTally:
    """Rows, mean and sample standard deviation of the scores, abstentions and failures; updated row by row.

    The mean and the sum of squared differences M2 are kept by Welford's recurrence, which does not cancel.
    """

    def __init__(self) -> None:
        self._rows = self._scores = self._abstained = self._failed = 0
        self._mean = self._squares = 0.0

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._rows += 1
            if outcome.score is not None:
                self._scores += 1
                distance = outcome.score - self._mean
                self._mean += distance / self._scores
                self._squares += distance * (outcome.score - self._mean)
            elif outcome.kind == "abstain":
                self._abstained += 1
            else:
                self._failed += 1

    @property
    def lost(self) -> bool:
        """True when it failed, and no row has a score."""
        return self._failed > 0 and not self._scores

    @property
    def silent(self) -> bool:
        """True when there are rows, and it abstained on every one."""
        return 0 < self._rows == self._abstained

    def cells(self) -> tuple[str, ...]:
        """Returns rows, mean, std, abstain and failure as text, "-" where there are too few scores."""
        mean = _figure(self._mean) if self._scores else "-"
        std = _figure(math.sqrt(self._squares / (self._scores - 1))) if self._scores > 1 else "-"
        return str(self._rows), mean, std, str(self._abstained), str(self._failed)


def _figure(number: float) -> str:
    return f"{number:.4f}" if abs(number) < _LARGE else f"{number:.4g}"
