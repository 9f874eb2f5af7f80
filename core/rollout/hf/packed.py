"""Lays the weights of linear layers out so that products of few rows are faster.

A decoding step multiplies each weight matrix by as many rows as there are completions. oneDNN brings weights into the
order in which it reads them once, instead of in every product: 1.1 to 2.7 times as fast for 8 to 64 rows. Only layers
in float32 on a CPU gain by it, and small ones lose more by the longer way to that product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grpo.core.policy.layers import is_plain

ROWS = 64  # that weights are laid out for; it serves other numbers as well
LEAST = 2**16  # entries of a weight matrix that gains
FEWEST_TOKENS = 12  # of a completion: laying weights out costs as much as some decoding steps save


def product(layer: torch.nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the product of a layer that `gains`; it has a copy of its weights."""
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
    bias = None if layer.bias is None else layer.bias.detach()

    def times(rows: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows.float(), weight, bias, "none", [], "")
        return output.to(rows.dtype)

    return times


def gains(layer: Any) -> bool:
    """Returns whether a module is a linear layer, and nothing else, with weights that gain."""
    return is_plain(layer) and layer.weight.numel() >= LEAST and torch._C._has_mkldnn
