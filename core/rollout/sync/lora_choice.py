"""Decides whether an adapter is synced alone or merged into the weights: by setting, or the faster way.

Handing the adapter over alone moves far less, but an engine samples more slowly with an adapter beside its weights.
Which of the two wins depends on the model, the batch and the device, so both are timed on the first batches.
"""

from __future__ import annotations

from typing import Literal

LoraSync = Literal["adapter", "folded", "auto"]
TRIALS = 3  # batches of each way; the first one of each also pays for warming up and does not count


class LoraChoice:
    """Decides batch by batch, and learns from the times it is told."""

    def __init__(self, wish: LoraSync) -> None:
        self._seconds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}  # hand-over, seconds per token
        self._tokens = 0.0
        self._handed = 0.0
        self._chosen: bool | None = {"adapter": False, "folded": True, "auto": None}[wish]
        self.folds = bool(self._chosen)

    @property
    def undecided(self) -> bool:
        return self._chosen is None

    def choose(self, able: bool) -> bool:
        """Returns whether to merge this time. `able`: whether the engine can serve an adapter at all."""
        if not able:
            self._chosen = True
        if self._chosen is None and all(len(times) >= TRIALS for times in self._seconds.values()):
            self._chosen = self._cost(True) < self._cost(False)
        if self._chosen is not None:
            self.folds = self._chosen
        else:
            self.folds = len(self._seconds[False]) >= TRIALS
        return self.folds

    def synced(self, seconds: float) -> None:
        self._handed = seconds

    def sampled(self, tokens: int, seconds: float) -> None:
        if self._chosen is None and tokens:
            self._tokens = max(self._tokens, float(tokens))
            self._seconds[self.folds].append((self._handed, seconds / tokens))

    def _cost(self, folds: bool) -> float:
        handed, each = zip(*self._seconds[folds][1:], strict=True)
        return float(min(handed) + self._tokens * min(each))
