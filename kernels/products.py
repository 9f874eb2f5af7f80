"""Multiplies float32 matrices on a CPU by oneDNN.

torch hands such products to MKL, which takes longer on an AMD EPYC (`python benchmarks/layers.py`). Both are correct to
float32. oneDNN prepares itself for each shape that it has not seen and takes longer to call, so only matrices of some
size gain.
"""

from __future__ import annotations

import torch

LEAST = 2**18  # entries of a weight matrix that gains
FEWEST_ROWS = 16  # that one is multiplied by


def gains(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Returns whether `times` is the faster way to left [N, K] @ right [K, M]."""
    return (
        left.dtype == torch.float32
        and right.dtype == torch.float32
        and left.device.type == "cpu"
        and right.device.type == "cpu"
        and right.numel() >= LEAST
        and len(left) >= FEWEST_ROWS
        and torch._C._has_mkldnn
        and bool(torch.backends.mkldnn.enabled)
    )


def times(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Returns left [N, K] @ right [K, M], plus bias [M], where `gains` says so; there is no gradient."""
    output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")
    return output
