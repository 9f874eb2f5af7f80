"""Decides which layers of a model may be computed in another way."""

from __future__ import annotations

from typing import Any

import torch


def is_plain(layer: Any) -> bool:
    """Returns whether a layer is a linear one of whole float32 weights on a CPU and computes nothing else."""
    return (
        type(layer) is torch.nn.Linear
        and is_its_own(layer)
        and type(layer.weight.data) is torch.Tensor
        and not hasattr(layer.weight, "ds_id")
        and layer.weight.dtype == torch.float32
        and layer.weight.device.type == "cpu"
        and (layer.bias is None or layer.bias.dtype == torch.float32)
    )


def is_its_own(module: Any) -> bool:
    """Returns whether a module has its own `forward` and no hooks, such as those that move weights."""
    return "forward" not in vars(module) and not module._forward_pre_hooks and not module._forward_hooks
