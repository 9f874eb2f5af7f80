"""What a forward pass keeps for the backward pass, in bytes: a configuration in, counts out, nothing allocated.

The model is built on torch's meta device, where tensors have shapes and no data, and a real forward pass runs through
it while every tensor that autograd saves is counted once. So the count follows the code of transformers and PEFT, not a
formula for it. Attention is replaced by a stand-in that saves what a fused kernel saves: queries, keys, values, output
and one float32 number per head and token; no [L, L] matrix.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.config.sections import LoraSection
from grpo.core.policy.load import add_lora
from grpo.plugins.errors import UsageError

_PROBE = 64  # tokens; what is saved is a straight line in them
_ATTENTION = "grpo_counted"


@dataclass(frozen=True, slots=True)
class Activations:
    """Saved bytes per token of a forward pass without the output layer.

    Attributes:
        layer: of one decoder layer.
        outside: embedding, final norm and hidden states.
        boundary: the input of one layer, all that checkpointing keeps of it.
        layers: how many there are.
    """

    layer: float
    outside: float
    boundary: float
    layers: int

    def host(self, tokens: int) -> int:
        """Bytes in host memory when the inputs of the layers are kept there."""
        return round(tokens * self.layers * self.boundary)

    def peak(self, tokens: int, checkpointing: str) -> int:
        """Bytes at the end of the forward pass, or while one layer is computed again.

        Args:
            tokens: in the micro batch.
            checkpointing: "none"; "full", which keeps the inputs of the layers and computes each again; "offload",
                which keeps these in host memory, but for the one in use and the one on its way.
        """
        kept = {
            "none": self.layers * self.layer,
            "full": self.layers * self.boundary + self.layer,
            "offload": 2 * self.boundary + self.layer,
        }[checkpointing]
        return round(tokens * (kept + self.outside))


def count_activations(config: Any, dtype: str, lora: LoraSection) -> Activations:
    """Counts what a forward pass of this model saves.

    Args:
        config: of transformers, for a causal language model.
        dtype: of the weights.
        lora: the adapter, if any; quantised weights save what plain ones do.

    Raises:
        UsageError: the model cannot be counted this way.
    """
    try:
        one, two = (_saved_per_token(_shallow(config, layers), dtype, lora) for layers in (1, 2))
    except UsageError:
        raise
    except Exception as error:  # remote code, or an attention of its own
        raise UsageError(
            f"cannot count the activations of a model of type '{config.model_type}' without its weights: "
            f"{type(error).__name__}: {error}"
        ) from error
    text = config.get_text_config()
    itemsize = getattr(torch, dtype).itemsize
    return Activations(
        layer=two - one,
        outside=2 * one - two,
        boundary=float(text.hidden_size * itemsize),
        layers=text.num_hidden_layers,
    )


def empty_policy(config: Any, dtype: str, lora: LoraSection) -> Any:
    """Builds the policy, its adapter included, on the meta device."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), trust_remote_code=False)
        return add_lora(model, lora.model_copy(update={"bits": None})) if lora.enabled else model


def _shallow(config: Any, layers: int) -> Any:
    shallow = copy.deepcopy(config)
    text = shallow.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    return shallow


def _saved_per_token(config: Any, dtype: str, lora: LoraSection) -> float:
    with _counted_attention(config):
        model = empty_policy(config, dtype, lora).train()
        return (_saved(model, 2 * _PROBE) - _saved(model, _PROBE)) / _PROBE


def _saved(model: Any, tokens: int) -> int:
    """Bytes of all tensors that a forward pass saves, each storage once, parameters and buffers left out."""
    owned = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # holding the storages keeps their addresses theirs

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in owned:
            kept[storage._cdata] = storage
        return tensor

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    ids = torch.zeros(1, tokens, dtype=torch.int64, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = base.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    kept[hidden.untyped_storage()._cdata] = hidden.untyped_storage()
    return sum(storage.nbytes() for storage in kept.values())


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        output = torch.empty_like(query)
        sums = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
        ctx.save_for_backward(query, key, value, output, sums)
        return output

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise AssertionError("nothing is computed on the meta device")


def _attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **_: Any
) -> tuple[torch.Tensor, None]:
    """What `sdpa` does when it gets a mask: keys and values repeated for their groups, then a fused kernel."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    output: torch.Tensor = _FusedAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return output.transpose(1, 2).contiguous(), None


@contextmanager
def _counted_attention(config: Any) -> Iterator[None]:
    """Lets the configuration use the counted attention; its own setting comes back."""
    from transformers import AttentionInterface

    AttentionInterface.register(_ATTENTION, _attention)
    text = config.get_text_config()
    before = text._attn_implementation
    text._attn_implementation = _ATTENTION
    try:
        yield
    finally:
        text._attn_implementation = before
