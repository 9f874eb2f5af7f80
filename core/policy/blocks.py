"""Which tokens of a row that holds many sequences see which: what is laid out (core/train/packing.py) and then attended
to (core/policy/attention.py). A part is some sequences of like length, which see themselves and, where they have one,
the prefix that they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

ATTENTION = "grpo"  # what takes them, by its name among the attentions of transformers


class Part(NamedTuple):
    """Sequences of a row that one call computes.

    Attributes:
        prefix: the positions of the P tokens that all of them see, from and to; P may be 0.
        segments: [n, T] int64, the positions of their own tokens. A shorter one repeats its last position.
        mask: [T, P + T] of the dtype of the queries, 0 where a token sees another, else minus infinity; None where P is
            0, as each token sees what stands before it.
    """

    prefix: tuple[int, int]
    segments: torch.Tensor
    mask: torch.Tensor | None


class Blocks:
    """How the tokens of a row [1, L] see each other.

    No dataclass: what wraps a model would look for tensors in one, and cast them.

    Attributes:
        parts: their segments, as they stand, cover the row.
        where: [L] int64, the place of each position among the segments of all parts, one after the other.
    """

    __slots__ = ("parts", "where")

    def __init__(self, parts: Sequence[Part], where: torch.Tensor) -> None:
        self.parts = parts
        self.where = where
