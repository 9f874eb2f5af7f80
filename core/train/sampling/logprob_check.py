"""Stops a run whose model computes other log-probabilities when it trains than when it sampled by itself.

A model that cannot tell padding from text is right when it samples rows of one length and wrong when it trains on
padded ones. Dropout, too, makes both sides differ, and is meant to: so what is too far apart is computed once more
without it, and where that agrees, dropout is the reason and the differences say nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from grpo.core.rollout.mismatch import Mismatch, difference_sums
from grpo.core.train.sampling.guard import Cursor, Gather, difference_metrics
from grpo.plugins.errors import RunError


@dataclass(eq=False)
class LogprobCheck:
    """Lets a step go by only when the policy computes in training what it computed when it sampled."""

    tolerance: float  # mean difference in nats over a step that rounding explains
    cursor: Cursor
    # the [n, 3] `difference_sums` of the step's micro batches, computed in evaluation mode
    without_dropout: Callable[[], torch.Tensor]
    gather: Gather
    kind: str
    _drops: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._apart = Mismatch(self.tolerance)

    def micro_batch(self, backward: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
        """Makes one backward pass, and after the last one of a step looks at how far both sides are apart.

        Returns:
            The loss, and nothing to tell.

        Raises:
            RunError: they are too far apart, and it is not for dropout.
        """
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

    def compare(self, train: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> Mapping[str, float]:
        self._apart.add(self.gather(difference_sums(train, sampled, mask)))
        return difference_metrics(self._apart.mean, self._apart.largest)


def _apart_text(step: int, kind: str, mean: float) -> str:
    return (
        f"step {step}: with the same weights, log-probabilities in training and sampling are {mean:.2g} nats apart on "
        f"average, so models of the type '{kind}' are not computed correctly in padded batches. No weight was changed "
        "in this step. Choose another model, or train.head='grpo' instead of 'trl'. If it is only rounding, raise "
        "rollout.tolerance."
    )
