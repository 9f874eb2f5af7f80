"""Computes moments of scores of which some are missing (NaN)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

EPSILON = 1e-4
"""What is added to a standard deviation before something is divided by it."""


def deviation(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns the unbiased standard deviation along `dim` of the entries that are not NaN; 0 of fewer than two."""
    present = ~values.isnan()
    number = present.sum(dim=dim)
    apart = (values - values.nanmean(dim=dim, keepdim=True)).masked_fill(~present, 0.0)
    return (apart.square().sum(dim=dim) / (number - 1).clamp(min=1)).sqrt()


def batch_deviation(values: torch.Tensor) -> torch.Tensor:
    """Returns the standard deviation of [groups, G] values over all groups, [1, 1]."""
    return deviation(values.reshape(1, -1), dim=1)[:, None]
