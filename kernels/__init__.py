"""Provides memory-efficient kernels, each in a module of its own with a plain-torch reference."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo.kernels.logp import linear_logp
    from grpo.kernels.reference import naive_logp
    from grpo.kernels.tiles import Tile

__all__ = ["Tile", "linear_logp", "naive_logp"]

_HOMES = {"Tile": "tiles", "linear_logp": "logp", "naive_logp": "reference"}


# Unlike its neighbours this package does not refuse its bare name: transformers imports whatever `kernels` it finds on
# the path to read its version, and an error here would keep it from loading in a checkout.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'grpo.kernels' has no attribute '{name}'")
    return getattr(importlib.import_module(f"grpo.kernels.{_HOMES[name]}"), name)
