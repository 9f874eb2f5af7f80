"""Finds a model's cache by name: newer releases of transformers call `past_key_values` and `cache_params` `cache`."""

from __future__ import annotations

import inspect
from typing import Any, Final

CACHE_NAMES: Final = ("cache", "past_key_values", "cache_params")


def cache_argument(model: Any) -> str:
    """Returns the argument of a model's forward pass that takes its cache; "" if the forward pass names none."""
    parameters = forward_parameters(model)
    return next((name for name in CACHE_NAMES if name in parameters), "")


def output_cache(output: Any) -> Any:
    """Returns the cache in the output of a forward pass, or None."""
    fields = (getattr(output, name) for name in CACHE_NAMES if hasattr(output, name))
    return next((cache for cache in fields if cache is not None), None)


def forward_parameters(model: Any) -> frozenset[str]:
    """Returns the parameters of the forward pass of a model of transformers, without its adapter."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    return frozenset(inspect.signature(type(plain).forward).parameters)
