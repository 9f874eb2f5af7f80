"""Makes the policy's frozen parameters views of the engine's tensors, so that one copy serves both.

The engine fuses matrices (q, k and v into one) and pads the vocabulary, so a parameter becomes some contiguous rows of
a larger tensor. From then on only the adapter is trained and synced, and nobody writes to these tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from grpo.core.rollout.sync.fault import listed
from grpo.core.rollout.sync.payload import frozen_parameters
from grpo.core.rollout.sync.views import engine_tensors
from grpo.plugins.errors import UsageError


def share_frozen(model: Any, engine_model: Any) -> int:
    """Makes a policy's frozen parameters views of an engine's unquantised whole weights; returns the bytes saved.

    Raises UsageError if they differ.
    """
    before = distinct_bytes([*model.parameters(), *engine_model.parameters()])
    views = dict(engine_tensors(engine_model))
    frozen = list(frozen_parameters(model))
    absent = [name for name, parameter in frozen if name not in views or views[name].shape != parameter.shape]
    if absent:
        raise UsageError(
            f"--share-weights: the engine does not hold {listed(absent)} as the policy does (on a CPU, vLLM packs "
            "matrices into another form; quantised and sharded ones are others too). Leave --share-weights out."
        )
    other = [name for name, parameter in frozen if not _same(views[name], parameter)]
    if other:
        raise UsageError(
            f"--share-weights: the engine loaded other values than the policy for {listed(other)}. Both must have the "
            "same data type and come from the same files. Leave --share-weights out."
        )
    for name, parameter in frozen:
        parameter.data = views[name]
    return before - distinct_bytes([*model.parameters(), *engine_model.parameters()])


def distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Returns the bytes of the memory behind some tensors, each piece once."""
    pieces = {(t.device, t.untyped_storage().data_ptr()): t.untyped_storage().nbytes() for t in tensors}
    return sum(pieces.values())


def _same(view: torch.Tensor, parameter: torch.Tensor) -> bool:
    return view.dtype == parameter.dtype and torch.equal(view, parameter.detach().to(view.device))
