"""What a frozen head holds in memory: no logits and no second head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from logp_problem import DEVICE, INTERPRETED, problem

from grpo.kernels import Tile, linear_logp


@contextmanager
def largest_allocation() -> Iterator[list[int]]:
    """Collects the sizes in bytes of the tensors that operators return."""
    from torch.utils._python_dispatch import TorchDispatchMode

    sizes = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            tensors = out if isinstance(out, tuple | list) else [out]
            sizes.extend(t.untyped_storage().nbytes() for t in tensors if isinstance(t, torch.Tensor))
            return out

    with Watch():
        yield sizes


@pytest.mark.skipif(DEVICE != "cpu" or INTERPRETED, reason="watches operators of torch")
def test_a_frozen_head_allocates_no_second_head_and_no_logits() -> None:
    given = problem(trained=False, shape=(64, 8, 40_000))
    with torch.no_grad():
        given.run(linear_logp, tile=Tile(16, 256))  # autograd's worker threads are outside the watch
    with largest_allocation() as sizes:
        logp, _ = given.run(linear_logp, tile=Tile(16, 256), entropy="value")
    logp.sum().backward()
    assert given.weight.grad is None
    views_of_the_weight = {given.weight.untyped_storage().nbytes()}
    assert max(set(sizes) - views_of_the_weight) <= 16 * 256 * 4
