"""Merges a policy's adapter into its weights and lays them out for sampling, to save two of three products per layer.

Float32 weights are merged in a copy, for as long as the sampling lasts. Left alone are weights of lower precision,
which would lose part of the adapter in the sum, layers that another module shares, shards of layers, and adapters that
are more than a sum. A copy that is laid out for sampling (core/rollout/hf/faster_layers.py) is the only one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from grpo.core.policy.modules import is_its_own, is_plain
from grpo.core.rollout.hf.faster_layers import Product, gains, is_known, is_precise, joined, one_of, parts, product


@contextmanager
def folded(model: Any, *, packs: bool = False) -> Iterator[None]:
    """Merges the adapter of a model for the block, without gradients; `packs`: lay weights out for few rows, too."""
    rounds = hasattr(model, "_original_forward") or torch.is_autocast_enabled(model.device.type)  # accelerate's does
    packs = packs and not rounds
    adapters = {adapter.base_layer: adapter for adapter in _foldable(model)}
    with ExitStack() as ends:

        def fold(layer: Any) -> None:
            if layer in adapters:
                ends.callback(_unfold, adapters[layer], layer.weight.data)
                layer.weight.data = layer.weight.data.clone()
                adapters[layer].merge()

        def change(module: Any, forward: Callable[..., Any], *laid_out: Any) -> None:
            ends.callback(delattr, module, "forward")
            module.forward = forward
            for layer in laid_out:
                if layer in adapters:
                    # Not the frozen ones: whoever takes the adapter off meanwhile would change them.
                    layer.weight.data = layer.weight.data.new_empty(0)

        joinable = dict(_joinable(model, adapters, copies=is_precise(model))) if packs and is_known(model) else {}
        done = _wrapped(model)
        for name, module in model.named_modules():  # parts of a module come after it
            if module in joinable:
                for layer in joinable[module]:
                    fold(layer)
                whole = _whole(joinable[module], adapters)
                change(module, joined(module, whole), *joinable[module])
                done.update(joinable[module])
            elif module not in done:
                fold(module)
                if packs and ".lora_" not in name and gains(module):
                    change(module, product(module), module)
        yield


def _unfold(adapter: Any, frozen: torch.Tensor) -> None:
    adapter.base_layer.weight.data = frozen
    adapter.merged_adapters.clear()


def _whole(layers: Sequence[torch.nn.Linear], adapters: Mapping[Any, Any]) -> Product | None:
    """Returns the product of layers, side by side, which fails once an adapter in it is taken off."""
    if not layers:
        return None
    whole = one_of(layers)
    times = product(whole) if gains(whole) else whole
    own = [adapters[layer] for layer in layers if layer in adapters]

    def checked(rows: torch.Tensor) -> torch.Tensor:
        if any(adapter.disable_adapters for adapter in own):
            raise RuntimeError("an adapter was taken off while its policy samples with it")
        return times(rows)

    return checked if own else times


def _joinable(
    model: Any, adapters: Mapping[Any, Any], *, copies: bool
) -> Iterator[tuple[Any, Sequence[torch.nn.Linear]]]:
    """Yields modules that can be `joined`, with the plain layers below them that become one where `copies` may be."""
    bases = {adapter: layer for layer, adapter in adapters.items()}
    for module in model.modules():
        layer_parts = parts(module)
        if layer_parts is not None and not copies:
            layer_parts = []
        if layer_parts is None or not all(map(is_its_own, [module, *layer_parts])):
            continue
        layers = [bases.get(layer, layer) for layer in layer_parts]
        if all(map(is_plain, layers)) and len({layer.bias is None for layer in layers}) < 2:
            yield module, layers


def _wrapped(model: Any) -> set[Any]:
    if not hasattr(model, "peft_config"):
        return set()
    from peft.tuners.lora.layer import ParamWrapper

    return {module.base_layer for module in model.modules() if isinstance(module, ParamWrapper)}


def _foldable(model: Any) -> list[Any]:
    if not hasattr(model, "peft_config"):
        return []
    from peft.tuners.lora import Linear

    owners = Counter(id(module.weight) for module in model.modules() if "weight" in module._parameters)
    return [layer for layer in model.modules() if type(layer) is Linear and _is_sum(layer, owners)]


def _is_sum(layer: Any, owners: Counter[int]) -> bool:
    weight = layer.base_layer.weight
    return (
        type(layer.base_layer) is torch.nn.Linear
        and "forward" not in vars(layer)
        and type(weight) is torch.nn.Parameter
        and weight.dtype == torch.float32
        and weight.numel() > 0
        and not hasattr(weight, "ds_id")
        and type(weight.data) is torch.Tensor
        and owners[id(weight)] == 1
        and not (layer.merged or layer.disable_adapters)
        and not any(layer.lora_bias.get(name) or name in layer.lora_variant for name in layer.active_adapters)
    )
