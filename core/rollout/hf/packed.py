"""Products of few rows, faster: a linear layer in, the same layer with its weights laid out for them.

A decoding step multiplies each weight matrix by as many rows as there are completions. oneDNN brings weights into the
order in which it reads them once, instead of in every product: 1.1 to 2.7 times as fast for 8 to 64 rows. Only layers
in float32 on a CPU gain by it, and small ones lose more by the longer way to that product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

ROWS = 64  # that weights are laid out for; it serves other numbers as well
LEAST = 2**16  # entries of a weight matrix that gains
FEWEST_TOKENS = 12  # of a completion: laying weights out costs as much as some decoding steps save


@contextmanager
def packing() -> Iterator[Callable[[Any], bool]]:
    """Yields what lays out the weights of a layer, and says whether it did; all are as they were when this ends."""
    layers: list[Any] = []

    def pack(layer: Any) -> bool:
        if not _gains(layer):
            return False
        layer.forward = _product(layer)
        layers.append(layer)
        return True

    try:
        yield pack
    finally:
        for layer in layers:
            del layer.forward


def _product(layer: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
    bias = None if layer.bias is None else layer.bias.detach()

    def product(rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows.float(), weight, bias, "none", [], "")
        return found.to(rows.dtype)

    return product


def _gains(layer: Any) -> bool:
    """Returns whether a module is a plain linear layer, all of it here, with weights that gain."""
    if type(layer) is not torch.nn.Linear or "forward" in vars(layer) or not torch._C._has_mkldnn:
        return False
    weight = layer.weight
    return (
        type(weight.data) is torch.Tensor
        and not hasattr(weight, "ds_id")
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= LEAST
        and (layer.bias is None or layer.bias.dtype == torch.float32)
    )
