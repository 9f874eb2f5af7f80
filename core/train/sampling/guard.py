"""Verifies before each optimizer step that the completions came from the policy, and samples them again if not.

The log-probabilities of the engine's tokens are compared with those that training computes anyway. When they are
further apart than rounding explains, the gradients gathered so far are thrown away, everything is synced anew, the
prompts are completed again and the step catches up. When that does not help, the run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Protocol

import torch

from grpo.core.rollout.mismatch import Mismatch, difference_sums
from grpo.core.rollout.sync.fault import listed
from grpo.plugins.errors import RunError

Gather = Callable[[torch.Tensor], torch.Tensor]  # [n, ...] of this process to [processes * n, ...] of all


class Cursor(Protocol):
    """Where training stands among the micro batches of a step."""

    @property
    def step(self) -> int:
        """The optimizer step that is under way, from 1."""
        ...

    @property
    def done(self) -> int:
        """How many micro batches of it have had their backward pass; 0 after the last one."""
        ...

    def rewind(self) -> None:
        """Goes back to the first one, without gradients and figures; its completions are sampled anew."""
        ...


@dataclass(eq=False)
class StepGuard:
    """Lets a step go by only when its completions came from the policy."""

    tolerance: InitVar[float]
    cursor: Cursor
    differing: Callable[[], Sequence[str]]  # names the parameters that the engine has other values of
    gather: Gather

    def __post_init__(self, tolerance: float) -> None:
        self._apart = Mismatch(tolerance)

    def micro_batch(self, backward: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Makes one backward pass, and the whole step so far again where its completions came from other weights.

        Args:
            backward: makes a pass, in which `compare` may be called, and moves the cursor; returns the loss.

        Returns:
            The loss of the last pass, and what there is to tell.

        Raises:
            RunError: completions that were sampled again came from other weights, too.
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

    def compare(self, train: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> Mapping[str, float]:
        """Notes how far the log-probabilities [B, T] of training and sampling are apart where the mask is not 0."""
        self._apart.add(self.gather(difference_sums(train, sampled, mask)))
        return difference_metrics(self._apart.mean, self._apart.largest)


def difference_metrics(mean: float, largest: float) -> dict[str, float]:
    """Names the differences between sampling and training, in nats."""
    return {
        "sampling/sampling_logp_difference/max": largest,
        "sampling/sampling_logp_difference/mean": mean,
    }


def mismatch_text(step: int, before: tuple[float, float], after: Mismatch, names: Sequence[str]) -> str:
    """Says how far (mean and largest) both sides were apart, before and after everything was done again."""
    whose = f"these parameters differ: {listed(names)}" if names else "every parameter is the same in both"
    return (
        f"step {step}: log-probabilities of the rollout engine and of training are "
        f"{before[0]:.2g} apart on average and {before[1]:.2g} at most, and after a full sync and new completions "
        f"{after.mean:.2g} and {after.largest:.2g}; {whose}. The gradients were thrown away and "
        "no weight was changed. Sample with rollout.backend='hf'; where the weights are the same and the "
        "difference is the engine's rounding, raise rollout.tolerance."
    )
