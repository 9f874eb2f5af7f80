"""Computes log-probabilities of the frozen reference policy for the KL term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from grpo.core.train.batch.tensors import Tensors

REFERENCE = "ref"  # what TRL calls the frozen copy of a warmed-up adapter


class Reference:
    """The reference policy.

    Args:
        logps: a model and rollouts in, log-probabilities [N, T] without a gradient out.
        frozen: a model of its own, or None: it is the policy with another adapter, or with none.
    """

    def __init__(
        self, logps: Callable[[Any, Tensors], torch.Tensor], *, frozen: Any, wrapped: Any, policy: Any
    ) -> None:
        self._logps = logps
        self._frozen = frozen
        self._wrapped = wrapped
        self._policy = policy

    def __call__(self, tensors: Tensors) -> torch.Tensor:
        """Returns log-probabilities [N, T]."""
        if self._frozen is not None:
            return self._logps(self._frozen, tensors)
        with self._adapter():
            return self._logps(self._wrapped, tensors)

    @contextmanager
    def _adapter(self) -> Iterator[None]:
        """Gives the policy the adapter that the run began with: the frozen copy of a warmed-up one, or none."""
        if REFERENCE not in self._policy.peft_config:
            with self._policy.disable_adapter():
                yield
            return
        trained = self._policy.active_adapter
        self._policy.set_adapter(REFERENCE)
        try:
            yield
        finally:
            self._policy.set_adapter(trained)
