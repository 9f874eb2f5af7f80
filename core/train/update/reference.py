"""Computes log-probabilities of the frozen reference policy for the KL term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.train.batch.tensors import Tensors

REFERENCE = "ref"  # what TRL calls the frozen copy of a warmed-up adapter


@dataclass(eq=False)
class Reference:
    """The reference policy."""

    # a model and rollouts in, log-probabilities [N, T] without a gradient out
    logps: Callable[[Any, Tensors], torch.Tensor]
    frozen: Any  # a model of its own, or None: it is the policy with another adapter, or with none
    wrapped: Any
    policy: Any

    def __call__(self, tensors: Tensors) -> torch.Tensor:
        """Returns log-probabilities [N, T]."""
        if self.frozen is not None:
            return self.logps(self.frozen, tensors)
        with self._adapter():
            return self.logps(self.wrapped, tensors)

    @contextmanager
    def _adapter(self) -> Iterator[None]:
        """Gives the policy the adapter that the run began with: the frozen copy of a warmed-up one, or none."""
        if REFERENCE not in self.policy.peft_config:
            with self.policy.disable_adapter():
                yield
            return
        trained = self.policy.active_adapter
        self.policy.set_adapter(REFERENCE)
        try:
            yield
        finally:
            self.policy.set_adapter(trained)
