"""Verifies before each optimizer step that the completions came from the policy, and samples them again if not.

The engine's log-probabilities are compared with those that training computes anyway. Further apart than rounding, and
everything is synced, the prompts are completed again and the step repeated. If that does not help, the run stops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch

from grpo.core.rollout.sync.fault import listed
from grpo.plugins.errors import RunError

Result = TypeVar("Result")
Gather = Callable[[torch.Tensor], torch.Tensor]  # [n, ...] of this process to [processes * n, ...] of all
OUTLIER = 50.0  # one token may differ by so many times the tolerance of the mean


class Mismatch:
    """The differences of the current step. `tolerance`: the mean in nats that the engine's arithmetic explains."""

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
        """Whether the engine cannot have had the policy's weights."""
        return not (self.mean <= self._tolerance and self.largest <= OUTLIER * self._tolerance)


def difference_sums(train: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns [1, 3] float32: sum, number and largest absolute difference where the mask [B, T] is not 0."""
    differences = (train.float() - sampled.float()).abs()[mask.bool()]
    largest = differences.max() if len(differences) else differences.new_zeros(())
    return torch.stack([differences.sum(), differences.new_tensor(float(len(differences))), largest])[None]


class Cursor(Protocol):
    """The position of training among the micro batches of a step."""

    @property
    def step(self) -> int:
        """The optimizer step that is under way, from 1."""

    @property
    def done(self) -> int:
        """Micro batches of it that have had their backward pass; 0 after the last one."""

    def rewind(self) -> None:
        """Returns to the first one, without gradients and figures; its completions are sampled anew."""


@dataclass(eq=False)
class _Comparison:
    tolerance: float  # mean difference in nats over a step that rounding explains
    cursor: Cursor
    gather: Gather

    def __post_init__(self) -> None:
        self._apart = Mismatch(self.tolerance)

    def compare(self, train: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> Mapping[str, float]:
        self._apart.add(self.gather(difference_sums(train, sampled, mask)))
        return difference_metrics(self._apart.mean, self._apart.largest)


@dataclass(eq=False)
class StepGuard(_Comparison):
    """Passes a step only when its completions came from the policy."""

    differing: Callable[[], Sequence[str]]  # names the parameters that the engine has other values of

    def micro_batch(self, backward: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Makes one backward pass, and repeats the whole step so far if its completions came from other weights.

        `backward` may call `compare`, moves the cursor and returns the loss. Returns the loss of the last pass and
        metrics. Raises RunError if new completions came from other weights, too.
        """
        passes = self.cursor.done + 1
        if passes == 1:
            self._apart.clear()
        loss = backward()
        if not self._apart.too_far:
            return loss, {}
        before = self._apart.mean, self._apart.largest
        self._apart.clear()
        self.cursor.rewind()
        for _ in range(passes):
            loss = backward()
            if self._apart.too_far:
                raise RunError(mismatch_text(self.cursor.step, before, self._apart, self.differing()))
        return loss, {"sync/steps_again": 1.0}


def proven(
    step: int, attempt: Callable[[bool], tuple[Result, Mismatch]], differing: Callable[[], Sequence[str]]
) -> tuple[Result, Mismatch, dict[str, float]]:
    """Samples, and once more on a mismatch. Returns samples, their mismatch, and a metric of a second attempt.

    `attempt`: samples and compares; True: syncs all weights before. `differing`: names the parameters that differ.
    Raises RunError if the second attempt mismatches, too.
    """
    result, apart = attempt(False)
    if not apart.too_far:
        return result, apart, {}
    before = apart.mean, apart.largest
    result, apart = attempt(True)
    if apart.too_far:
        raise RunError(mismatch_text(step, before, apart, differing()))
    return result, apart, {"sync/batches_again": 1.0}


def difference_metrics(mean: float, largest: float) -> dict[str, float]:
    """Names the differences between sampling and training, in nats."""
    return {"sampling/sampling_logp_difference/max": largest, "sampling/sampling_logp_difference/mean": mean}


def mismatch_text(step: int, before: tuple[float, float], after: Mismatch, names: Sequence[str]) -> str:
    """Describes the mismatch (mean and largest), before and after everything was done again."""
    whose = f"these parameters differ: {listed(names)}" if names else "every parameter is the same in both"
    return (
        f"step {step}: log-probabilities of the rollout engine and of training are "
        f"{before[0]:.2g} apart on average and {before[1]:.2g} at most, and after a full sync and new completions "
        f"{after.mean:.2g} and {after.largest:.2g}; {whose}. The gradients were thrown away and "
        "no weight was changed. Sample with rollout.backend='hf'; where the weights are the same and the "
        "difference is the engine's rounding, raise rollout.tolerance."
    )


@dataclass(eq=False)
class LogprobCheck(_Comparison):
    """Stops a run whose log-probabilities differ in training and sampling (wrong padding), but not by dropout."""

    # the [n, 3] `difference_sums` of the step's micro batches, computed in evaluation mode
    without_dropout: Callable[[], torch.Tensor]
    kind: str
    _drops: bool = field(default=False, init=False)

    def micro_batch(self, backward: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Makes a backward pass; raises RunError after a step's last one when the mismatch is too large."""
        if self.cursor.done == 0:
            self._apart.clear()
        loss = backward()
        if self.cursor.done == 0 and not self._drops and self._apart.mean > self.tolerance:
            again = Mismatch(self.tolerance)
            again.add(self.gather(self.without_dropout()))
            if again.mean > self.tolerance:
                raise RunError(_apart_text(self.cursor.step, self.kind, again.mean))
            self._drops = True
        return loss, {}


def _apart_text(step: int, kind: str, mean: float) -> str:
    return (
        f"step {step}: with the same weights, log-probabilities in training and sampling are {mean:.2g} nats apart on "
        f"average, so models of the type '{kind}' are not computed correctly in padded batches. No weight was changed "
        "in this step. Choose another model, or train.head='grpo' instead of 'trl'. If it is only rounding, raise "
        "rollout.tolerance."
    )
