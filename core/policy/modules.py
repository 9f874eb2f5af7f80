"""Finds the cache class of a transformers model by name, and the layers that may be computed differently.

Newer releases of transformers call `past_key_values` and `cache_params` `cache`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

import torch

CACHE_NAMES: Final = ("cache", "past_key_values", "cache_params")


def cache_argument(model: Any) -> str:
    """Returns the argument of a model's forward pass that takes its cache; "" if the forward pass names none."""
    parameters = forward_parameters(model)
    return next((name for name in CACHE_NAMES if name in parameters), "")


def output_cache(output: Any) -> Any:
    """Returns the cache in the output of a forward pass, or None."""
    fields = (getattr(output, name) for name in CACHE_NAMES if hasattr(output, name))
    return next((cache for cache in fields if cache is not None), None)


def without_adapter(model: Any) -> Any:
    """Returns the model of transformers inside one of PEFT, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def forward_parameters(model: Any) -> frozenset[str]:
    """Returns the parameters of the forward pass of a model of transformers, without its adapter."""
    return _parameters(type(without_adapter(model)).forward)


@functools.lru_cache(maxsize=16)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


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
