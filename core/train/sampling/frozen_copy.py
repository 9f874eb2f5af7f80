"""Keeps a copy of the policy with the weights of an earlier step for as long as it is sampled from.

Only what trains is copied; the frozen weights of an adapter's base are the policy's own. A copy that is given back is
written over for the next one, so there are no more of them than were in use at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(eq=False)
class FrozenCopies:
    """Copies of a policy."""

    policy: Callable[[], Any]
    # gives a copy the way to be called that belongs to one model object (core/train/update/head.py)
    attach: Callable[[Any], None]
    _free: deque[Any] = field(default_factory=deque, init=False)

    def take(self) -> Any:
        """Returns a copy with the weights that the policy has now, in evaluation mode."""
        policy = self.policy()
        copy = self._free.pop() if self._free else self._made(policy)
        with torch.no_grad():
            for own, new in zip(copy.parameters(), policy.parameters(), strict=True):
                if own is not new:
                    own.copy_(new)
        return copy

    def give_back(self, copy: Any) -> None:
        """Takes a copy back; threads may."""
        self._free.append(copy)

    def _made(self, policy: Any) -> Any:
        kept = {id(parameter): parameter for parameter in policy.parameters() if not parameter.requires_grad}
        made = deepcopy(policy, kept)
        for module in {made, made.get_base_model() if hasattr(made, "peft_config") else made}:
            module.__dict__.pop("forward", None)  # what stands around the policy's own computes with the policy
        self.attach(made)
        made.eval()
        return made
