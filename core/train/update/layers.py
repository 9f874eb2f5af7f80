"""Replaces the linear layers of a policy by faster ones while it is trained; the numbers are the same but for rounding.

On a CPU, in float32, `grpo.kernels.linear` speeds up products and LoRA adapters. Under autocast PEFT copies the input
of each adapted layer to float32 and keeps it for the backward pass; here it is kept once, as it is. Left alone: other
precisions, layers that a module around them shards or moves, adapters that are more than a sum or have dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from grpo.core.policy.modules import is_its_own, is_plain
from grpo.kernels.linear import LEAST, adapted_linear, linear


@contextmanager
def faster_layers(model: Any) -> Iterator[None]:
    """Speeds up the layers of a model, possibly wrapped, whose weights are whole."""
    changed = list(_faster(model))
    for layer, faster in changed:
        layer.forward = faster
    try:
        yield
    finally:
        for layer, _ in changed:
            del layer.forward


def _faster(model: Any) -> Iterator[tuple[Any, Callable[..., torch.Tensor]]]:
    from peft.tuners.lora import Linear

    inner: set[int] = set()
    for module in model.modules():
        if type(module) is Linear and is_its_own(module):
            plain = is_plain(module.base_layer)
            inner.update(id(part) for part in module.modules() if plain and part is not module)
            yield module, partial(_adapted if plain else _uncopied, module, module.forward)
        elif id(module) not in inner and is_plain(module) and module.weight.numel() >= LEAST:
            yield module, partial(_own, module, module.forward)


def _own(layer: Any, as_it_was: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return linear(x, layer.weight, layer.bias) if _is_exact(x) else as_it_was(x)


def _adapted(layer: Any, as_it_was: Callable[..., torch.Tensor], x: torch.Tensor, **options: Any) -> torch.Tensor:
    adapter = _adapter(layer) if _is_exact(x) and not options else None
    if adapter is None or not (is_plain(layer.lora_A[adapter]) and is_plain(layer.lora_B[adapter])):
        return as_it_was(x, **options)
    base = layer.base_layer
    return adapted_linear(
        x, base.weight, base.bias, layer.lora_A[adapter].weight, layer.lora_B[adapter].weight, layer.scaling[adapter]
    )


def _uncopied(layer: Any, as_it_was: Callable[..., torch.Tensor], x: torch.Tensor, **options: Any) -> torch.Tensor:
    adapter = _adapter(layer) if _is_of_autocast(x) and not options else None
    if adapter is None:
        return as_it_was(x, **options)
    own: torch.Tensor = layer.base_layer(x)
    added: torch.Tensor = layer.lora_B[adapter](layer.lora_A[adapter](x)) * layer.scaling[adapter]
    return own + added


def _is_of_autocast(x: torch.Tensor) -> bool:
    kind = x.device.type
    return torch.is_autocast_enabled(kind) and x.dtype == torch.get_autocast_dtype(kind)


def _is_exact(x: torch.Tensor) -> bool:
    return x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def _adapter(layer: Any) -> str | None:
    """Returns the name of a layer's only active adapter, if that is just a product of two matrices."""
    names: list[str] = [name for name in layer.active_adapters if name in layer.lora_A]
    if len(names) != 1 or layer.merged or layer.disable_adapters:
        return None
    (name,) = names
    dropout = layer.lora_dropout[name]
    if name in layer.lora_variant or layer.lora_bias[name] or (layer.training and getattr(dropout, "p", 0.0)):
        return None
    return name
