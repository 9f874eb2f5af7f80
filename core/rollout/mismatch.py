"""Watches how far the log-probabilities of the rollout engine are from those of training, over one optimizer step."""

from __future__ import annotations

import math

import torch

OUTLIER = 50.0  # one token may differ by so many times the tolerance of the mean


class Mismatch:
    """The differences of the current step.

    `tolerance`: mean difference in nats that the engine's arithmetic explains.
    """

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self.clear()

    def clear(self) -> None:
        self._sum = 0.0
        self._count = 0.0
        self.largest = 0.0

    def add(self, sums: torch.Tensor) -> None:
        """Adds a micro batch. `sums`: [processes, 3] sum, number and largest of the differences in nats."""
        self._sum += float(sums[:, 0].sum())
        self._count += float(sums[:, 1].sum())
        largest = float(sums[:, 2].max())
        self.largest = math.nan if math.isnan(largest) else max(self.largest, largest)

    @property
    def mean(self) -> float:
        return self._sum / self._count if self._count else 0.0

    @property
    def too_far(self) -> bool:
        """The engine cannot have had the policy's weights."""
        return not (self.mean <= self._tolerance and self.largest <= OUTLIER * self._tolerance)


def difference_sums(train: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns [1, 3] float32: sum, number and largest absolute difference where the mask [B, T] is not 0."""
    differences = (train.float() - sampled.float()).abs()[mask.bool()]
    largest = differences.max() if len(differences) else differences.new_zeros(())
    return torch.stack([differences.sum(), differences.new_tensor(float(len(differences))), largest])[None]
