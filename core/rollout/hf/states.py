"""Reads the cache or recurrent state from the output of a forward pass, whatever its class.

Attention's cache has a slot for each token, and a mask hides padding. Padding that is written into states (state-space
models, linear attention, short convolutions) stays. So models with states are decoded in rows of one length, as are
those that take no positions, or whose cache is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.policy.modules import cache_argument, forward_parameters, output_cache, without_adapter


@dataclass(frozen=True, slots=True)
class Carried:
    """A cache, and the argument of the model that takes it."""

    name: str
    cache: Any  # of transformers, [B, ...]; None where the model gives none away, so that every step begins anew

    def select(self, rows: torch.Tensor) -> None:
        """Keeps these rows, [N], in this order; a row may come several times."""
        if self.cache is not None:
            # Unlike `batch_select_indices`, it moves what every kind of layer holds: states, and keys and values.
            self.cache.reorder_cache(rows)

    def begun(self, config: Any) -> Carried:
        """Returns an empty cache of transformers for the same argument of a model with this configuration."""
        from transformers import DynamicCache

        return Carried(self.name, DynamicCache(config=config))

    def make_room(self, most: int) -> None:
        """Lets keys and values of full attention grow to `most` slots without copies; others stay as they are."""
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        from grpo.core.rollout.hf.kv_cache import PreallocatedLayer

        if type(self.cache) is DynamicCache:
            layers = self.cache.layers
            self.cache.layers = [
                PreallocatedLayer(layer, most) if type(layer) is DynamicLayer else layer for layer in layers
            ]


def carried(model: Any, output: Any) -> Carried:
    """Returns the cache or state in the output of a model's forward pass."""
    name, cache = cache_argument(model), output_cache(output)
    if name and hasattr(cache, "reorder_cache") and all(map(_is_known, getattr(cache, "layers", [None]))):
        return Carried(name, cache)
    return Carried("", None)


def taken(model: Any, **arguments: Any) -> dict[str, Any]:
    """Returns those of the arguments that the forward pass of a model names."""
    names = forward_parameters(model)
    return {name: value for name, value in arguments.items() if name in names}


def needs_equal_lengths(model: Any) -> bool:
    """Returns whether padding would change what a model computes."""
    from transformers import DynamicCache
    from transformers.cache_utils import LinearAttentionCacheLayerMixin

    plain = without_adapter(model)
    if (
        "position_ids" not in forward_parameters(model)
        or cache_argument(model) not in ("cache", "past_key_values")
        or plain._is_stateful
        or not plain._supports_default_dynamic_cache()
    ):
        return True
    layers: Any = DynamicCache(config=plain.config).layers
    return any(isinstance(layer, LinearAttentionCacheLayerMixin) or not _is_known(layer) for layer in layers)


def _is_known(layer: Any) -> bool:
    """Returns whether a layer of a cache is of transformers itself: a model's own may hold more state."""
    return type(layer).__module__ in ("transformers.cache_utils", "grpo.core.rollout.hf.kv_cache")
