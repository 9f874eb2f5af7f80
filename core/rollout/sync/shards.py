"""Puts the weights of a tensor-parallel engine together from the shards of its ranks.

Layers are split in one of two ways: by their outputs (rows of W; each of several fused matrices by itself) or by their
inputs (columns of W). What is not split is the same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Shards:
    """How a model is split; all ranks ask for the same things in the same order."""

    number: int = 1
    # this rank's tensor [...] to those of all ranks [number, ...], in the order of the ranks
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor[None]


WHOLE = Shards()


def joined_rows(module: Any, values: torch.Tensor, shards: Shards) -> torch.Tensor:
    """Returns the rows of all ranks for this rank's [n, ...], fused matrices one after the other."""
    if shards.number == 1 or not _splits_rows(module):
        return values
    everyone = shards.gather(values)
    sizes = getattr(module, "output_partition_sizes", None) or [values.shape[0]]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return torch.cat([everyone[:, end - n : end].flatten(0, 1) for n, end in zip(sizes, ends, strict=True)])


def local_width(module: Any, width: int) -> int:
    """Returns how many of the `width` columns of a module's matrix this rank holds."""
    return int(getattr(module, "input_size_per_partition", width))


def picked_columns(values: torch.Tensor, owners: torch.Tensor, shards: Shards) -> torch.Tensor:
    """Returns [N, P]: column i of the rank `owners[i]`, from this rank's [N, P]."""
    if shards.number == 1:
        return values
    return shards.gather(values)[owners, :, torch.arange(len(owners))].T


def joined_adapter(module: Any, letter: str, factor: torch.Tensor, shards: Shards) -> torch.Tensor:
    """Returns the whole A [r, in] or B [out, r] of a layer that is adapted, from this rank's part of it."""
    if shards.number == 1:
        return factor
    if letter == "A" and local_width(module, module.input_size) < module.input_size:
        return shards.gather(factor).transpose(0, 1).flatten(1, 2)
    if letter == "B" and _splits_rows(module):
        return shards.gather(factor).flatten(0, 1)
    return factor


def _splits_rows(module: Any) -> bool:
    if hasattr(module, "org_vocab_size"):
        return True
    rows = getattr(module, "output_size", None)
    return bool(rows is not None and getattr(module, "output_size_per_partition", rows) < rows)
