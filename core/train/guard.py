"""Optimizer steps on completions that provably came from the policy: sampled, compared, and done again if need be.

In: prompts and micro batches. Out: completions, and gradients of them. It joins TRL's trainer (core/train/trainer.py)
and uses what that has: its step counter, its buffer of micro batches, its metrics.

The log-probabilities of the engine's tokens are compared with those that training computes anyway. When they are
further apart than rounding explains, the gradients gathered so far are thrown away, everything is synced anew, the
prompts are completed again and the step catches up. When that does not help, the run stops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

from grpo.core.rollout.mismatch import Mismatch, difference_sums
from grpo.core.rollout.sync.fault import SyncFault, listed
from grpo.core.rollout.types import Rollouts
from grpo.core.text.randomness import preserved_randomness
from grpo.plugins.errors import RunError

T = TypeVar("T")


def rolled_out(rollouts: Rollouts, model: Any, roll_out: Callable[[], T], *, again: bool) -> tuple[T, dict[str, float]]:
    """Syncs and rolls out; an engine that lost its weights in between is synced, and all of it is done once more.

    Args:
        rollouts: the backend.
        model: the policy, unwrapped.
        roll_out: samples from the backend, as often as it wants.
        again: hand everything over anew.

    Returns:
        What `roll_out` returned, and the metrics of the sync.

    Raises:
        RunError: the engine cannot be brought to serve the policy.
    """
    metrics = dict(rollouts.sync(model, again=again))
    try:
        done = roll_out()
    except SyncFault:
        metrics = {**rollouts.sync(model, again=True), "sync/repeated": 1.0}
        done = roll_out()
    rollouts.rest()
    return done, metrics


class ProvenSteps:
    """The part of the trainer that steps only on proven completions."""

    _rollouts: Rollouts
    _mismatch: Mismatch
    _doubted: bool
    _step: int
    _buffered_inputs: Any
    args: Any
    model: Any
    state: Any
    accelerator: Any
    _metrics: Any

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One micro batch, and the whole step again where its completions came from other weights."""
        if self._step % self.args.steps_per_generation == 0:
            self._mismatch.clear()
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        if not self._mismatch.too_far:
            return loss
        done = (self._step - 1) % self.args.steps_per_generation + 1
        before = self._mismatch.mean, self._mismatch.largest
        self.model.zero_grad()
        self._metrics["train"].clear()
        self._mismatch.clear()
        self._step -= done
        self._buffered_inputs = None
        self._doubted = True
        for _ in range(done):
            loss = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
            if self._mismatch.too_far:
                raise RunError(self.mismatch_text(before, self._mismatch))
        self._doubted = False
        self._metrics["train"]["sync/steps_again"].append(1.0)
        return loss

    def compare(self, train: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> None:
        """Notes how far the log-probabilities [B, T] of training and sampling are apart where the mask is not 0."""
        self._mismatch.add(self.accelerator.gather(difference_sums(train, sampled, mask)))
        kept = self._metrics["train"]
        kept["sampling/sampling_logp_difference/max"].append(self._mismatch.largest)
        kept["sampling/sampling_logp_difference/mean"].append(self._mismatch.mean)

    def between_steps(self, roll_out: Callable[[Rollouts], T]) -> T:
        """Has something sampled from the policy as it is now; the random numbers of training stay as they were."""
        policy = self.accelerator.unwrap_model(self.model)
        with preserved_randomness():
            done, _ = rolled_out(self._rollouts, policy, partial(roll_out, self._rollouts), again=False)
        return done

    def mismatch_text(self, before: tuple[float, float], after: Mismatch) -> str:
        """Says how far (mean and largest) both sides were apart, before and after everything was done again."""
        names = self._rollouts.differing(self.accelerator.unwrap_model(self.model))
        whose = f"these parameters differ: {listed(names)}" if names else "every parameter is the same in both"
        return (
            f"step {self.state.global_step + 1}: log-probabilities of the rollout engine and of training are "
            f"{before[0]:.2g} apart on average and {before[1]:.2g} at most, and after a full sync and new completions "
            f"{after.mean:.2g} and {after.largest:.2g}; {whose}. The gradients were thrown away and "
            "no weight was changed. Sample with rollout.backend='hf'; where the weights are the same and the "
            "difference is the engine's rounding, raise rollout.tolerance."
        )
