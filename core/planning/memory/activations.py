"""Counts the bytes that a forward pass keeps, for the backward pass and in the cache, and allocates none of them.

A real forward pass runs on torch's meta device, where tensors have no data, while every tensor that autograd saves is
counted once, so the count follows the code of transformers and PEFT. Attention is replaced by a stand-in that saves
what a fused kernel saves: queries, keys, values, output and one float32 number per head and token. So is the product
with the matrices of experts, which saves its two factors.

What is saved grows with the tokens, but for weights that are made anew in each pass: PEFT adds an adapter of experts to
all of their matrices, and autograd keeps the sum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.config.sections import LoraSection
from grpo.core.policy.load import add_lora, empty_model
from grpo.core.policy.modules import output_cache, without_adapter
from grpo.plugins.errors import UsageError

_PROBE = 64  # tokens; what is saved is a straight line in them
_ATTENTION = "grpo_counted"


@dataclass(frozen=True, slots=True)
class Activations:
    """Saved bytes of a forward pass without the output layer, per token unless it says otherwise."""

    layer: float  # of one decoder layer
    outside: float  # embedding, final norm and hidden states
    boundary: float  # the input of one layer, all that checkpointing keeps of it
    layers: int
    made: float = 0.0  # bytes of the weights that one layer makes anew, however many tokens there are

    def host(self, tokens: int) -> int:
        """Bytes in host memory when the inputs of the layers are kept there."""
        return round(tokens * self.layers * self.boundary)

    def peak(self, tokens: int, checkpointing: str) -> int:
        """Bytes at the end of the forward pass, or while one layer is computed again.

        `checkpointing`: "none"; "full", which keeps the inputs of the layers and computes each again; "offload", which
        keeps these in host memory, but for the one in use and the one on its way.
        """
        kept = {
            "none": self.layers * self.layer,
            "full": self.layers * self.boundary + self.layer,
            "offload": 2 * self.boundary + self.layer,
        }[checkpointing]
        made = self.made * (self.layers if checkpointing == "none" else 1)
        return round(tokens * (kept + self.outside) + made)


def count_activations(policy: Any) -> Activations:
    """Counts what a forward pass saves, with all layers and with the first alone; a layer is the mean of the others.

    `policy`: a causal language model on the meta device (`empty_policy`), its adapter included; quantised weights save
    what plain ones do. Raises whatever the model's code raises.
    """
    base = without_adapter(policy).train()
    text = base.config.get_text_config()
    number = text.num_hidden_layers
    with _counted_attention(base):
        every, made = _saved_per_token(base)
        with _first_layer_alone(base, number):
            first, made_first = _saved_per_token(base)
    layer, made_layer = (every - first, made - made_first) if number > 1 else (first, made_first)
    layer, made_layer = layer / max(number - 1, 1), made_layer / max(number - 1, 1)
    return Activations(
        layer=layer,
        outside=max(first - layer, 0.0),
        boundary=float(text.hidden_size * base.dtype.itemsize),
        layers=number,
        made=max(made_layer, 0.0),
    )


def count_cache(policy: Any) -> float:
    """Counts the cache's bytes per token while sampling, too much for states. Raises what the model raises."""
    base = without_adapter(policy).eval()
    with _counted_attention(base), torch.no_grad():
        output = base.base_model(input_ids=_prompt(_PROBE), use_cache=True)
    tensors = {id(tensor): tensor for tensor in _tensors(output_cache(output))}
    if not tensors:
        raise UsageError(f"a model of the type '{base.config.model_type}' gives no cache away.")
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) / _PROBE


def empty_policy(config: Any, dtype: str, lora: LoraSection) -> Any:
    """Builds the policy, its adapter included, on the meta device. Raises UsageError."""
    model = empty_model(config, dtype)
    with torch.device("meta"):
        return add_lora(model, lora.model_copy(update={"bits": None})) if lora.enabled else model


@contextmanager
def _first_layer_alone(base: Any, number: int) -> Iterator[None]:
    lists = [
        (parent, name, child)
        for parent in base.modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.ModuleList)
    ]
    # A list of another part (the layers that see pictures) may be as long; those of the text are the largest. A
    # decoder out of an encoder-decoder may have another number than its configuration says of the encoder.
    parent, name, layers = max(
        lists, key=lambda owner: (len(owner[2]) == number, sum(weight.numel() for weight in owner[2].parameters()))
    )
    setattr(parent, name, layers[:1])
    try:
        yield
    finally:
        setattr(parent, name, layers)


def _saved_per_token(base: Any) -> tuple[float, float]:
    """Returns the bytes that are saved for each token, and those that do not depend on their number."""
    some, twice = _saved(base, _PROBE), _saved(base, 2 * _PROBE)
    return (twice - some) / _PROBE, 2 * some - twice


def _saved(base: Any, tokens: int) -> int:
    """Bytes of all tensors that a forward pass saves, each storage once, without parameters and buffers."""
    owned = {tensor.untyped_storage()._cdata for tensor in (*base.parameters(), *base.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # holding the storages keeps their addresses theirs

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in owned:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = base.base_model(input_ids=_prompt(tokens), use_cache=False).last_hidden_state
    kept[hidden.untyped_storage()._cdata] = hidden.untyped_storage()
    return sum(storage.nbytes() for storage in kept.values())


def _prompt(tokens: int) -> torch.Tensor:
    return torch.zeros(1, tokens, dtype=torch.int64, device="meta")


def _tensors(cache: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of a cache of transformers, or of a model's own: in its layers, or in lists and tuples."""
    if isinstance(cache, torch.Tensor):
        yield cache
    elif isinstance(cache, (list, tuple)):
        for part in cache:
            yield from _tensors(part)
    elif isinstance(cache, dict):
        yield from _tensors(list(cache.values()))
    elif cache is not None and hasattr(cache, "__dict__"):
        yield from _tensors(list(vars(cache).values()))


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        batch, heads, length, _ = query.shape  # laid out so that the next layer takes it without a copy
        output = query.new_empty(batch, length, heads, value.shape[-1]).transpose(1, 2)
        sums = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
        ctx.save_for_backward(query, key, value, output, sums)
        return output


class _GroupedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows, matrices)
        return rows.new_empty(len(rows), matrices.shape[-1])


def _autocast(device_type: str, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
    """Does what `torch.autocast` does, and nothing on the meta device, which that does not know."""
    return nullcontext() if device_type == "meta" else _torch_autocast(device_type, *args, **kwargs)


def _fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    output: torch.Tensor = _FusedAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return output


def _product(rows: torch.Tensor, matrices: torch.Tensor, **_: Any) -> torch.Tensor:
    output: torch.Tensor = _GroupedProduct.apply(rows, matrices)  # type: ignore[no-untyped-call]
    return output


_torch_autocast = torch.autocast
# What the meta device has no kernel for, or one that saves something else, and what stands in its place.
_STAND_INS: tuple[tuple[Any, str, Any], ...] = (
    (torch, "autocast", _autocast),
    (torch, "_grouped_mm", _product),
    (torch.nn.functional, "grouped_mm", _product),
    (torch.nn.functional, "scaled_dot_product_attention", _fused),
)


def _attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None, **_: Any
) -> tuple[torch.Tensor, None]:
    """Computes as `sdpa` does with a mask: repeats keys and values for their groups, then calls a fused kernel."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    return _fused(query, key, value).transpose(1, 2).contiguous(), None


@contextmanager
def _counted_attention(base: Any) -> Iterator[None]:
    from transformers import AttentionInterface

    AttentionInterface.register(_ATTENTION, _attention)
    text = base.config.get_text_config()
    before = text._attn_implementation
    if any(hasattr(sys.modules[type(part).__module__], "ALL_ATTENTION_FUNCTIONS") for part in base.modules()):
        text._attn_implementation = _ATTENTION  # else it knows a few names and calls torch itself (Falcon)
    own = [(owner, name, getattr(owner, name), other) for owner, name, other in _STAND_INS if hasattr(owner, name)]
    try:
        for owner, name, _, other in own:
            setattr(owner, name, other)
        yield
    finally:
        for owner, name, stand_in, _ in own:
            setattr(owner, name, stand_in)
        text._attn_implementation = before
