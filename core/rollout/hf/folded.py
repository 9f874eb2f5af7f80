"""The weights that a policy samples with: a model in, the same with its adapter added and its weights laid out, out.

Each adapted layer otherwise makes three products of one, at every token. Weights in float32 are folded into a copy that
lasts as long as the sampling, and then the frozen ones are back, bit for bit. Weights of lower precision would lose
part of the adapter in the sum, so that what is sampled would not be what is trained: they are left alone, as are layers
that another module shares, shards of layers, and kinds of adapters that are more than a sum. A copy that is laid out
for sampling (core/rollout/hf/packed.py) is the only one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from grpo.core.rollout.hf.packed import packing


@contextmanager
def folded(model: Any, *, packs: bool = False) -> Iterator[None]:
    """Adds the adapter of a model to its weights while this lasts; gradients are not needed meanwhile.

    Args:
        model: a model of transformers, or of PEFT around one.
        packs: also lay weights out for products of few rows.
    """
    own: list[tuple[Any, torch.Tensor]] = []
    with packing() as pack:
        try:
            for layer in _foldable(model):
                weight, frozen = layer.base_layer.weight, layer.base_layer.weight.data
                own.append((layer, frozen))
                weight.data = frozen.clone()
                layer.merge()
                if packs and pack(layer.base_layer):
                    # Not the frozen ones: whoever takes the adapter off meanwhile would change them.
                    weight.data = frozen.new_empty(0)
            if packs:
                for module in _plain(model):
                    pack(module)
            yield
        finally:
            for layer, frozen in own:
                layer.base_layer.weight.data = frozen
                layer.merged_adapters.clear()


def _plain(model: Any) -> list[Any]:
    """Returns the modules that are no part of an adapter."""
    return [module for name, module in model.named_modules() if ".lora_" not in name]


def _foldable(model: Any) -> list[Any]:
    """Returns the layers whose adapter is a sum with their own weights."""
    if not hasattr(model, "peft_config"):
        return []
    from peft.tuners.lora import Linear

    owners = Counter(id(module.weight) for module in model.modules() if "weight" in module._parameters)
    return [layer for layer in model.modules() if type(layer) is Linear and _is_sum(layer, owners)]


def _is_sum(layer: Any, owners: Counter[int]) -> bool:
    weight = layer.base_layer.weight
    return (
        type(layer.base_layer) is torch.nn.Linear
        and type(weight) is torch.nn.Parameter
        and weight.dtype == torch.float32
        and weight.numel() > 0
        and not hasattr(weight, "ds_id")
        and type(weight.data) is torch.Tensor
        and owners[id(weight)] == 1
        and not (layer.merged or layer.disable_adapters)
        and not any(layer.lora_bias[name] or name in layer.lora_variant for name in layer.active_adapters)
    )
