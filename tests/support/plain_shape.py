"""A model whose memory can be worked out by hand: the size of a token in, its shape out."""

from __future__ import annotations

from grpo.core.planning.memory.activations import Activations
from grpo.core.planning.memory.budget import GIB
from grpo.core.planning.memory.estimate import Shape


def plain_shape(token: int) -> Shape:
    """Returns a GiB of weights, as much of gradients, twice as much of optimizer, and bytes for each token.

    Args:
        token: bytes of a token in the cache, and as much in each of ten layers while it trains.
    """
    return Shape(
        parameters=GIB // 2,
        hidden=1,
        vocabulary=2,
        layers=10,
        itemsize=2,
        weights=GIB,
        adapter=0,
        gradients=GIB,
        optimizer=2 * GIB,
        reference=0,
        head_trains=False,
        cache=token,
        activations=Activations(layer=token, outside=0.0, boundary=token / 10, layers=10),
    )
