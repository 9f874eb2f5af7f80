"""Replaces linear layers, and the attention, MLP and norm layers around them, by faster ones for decoding.

A decoding step of few rows makes hundreds of small calls that take longer to begin than to compute. Here queries and
keys are rotated together, a norm is one call, and, for one new token in each row, the backbone calls its layers itself.
Only for the families that the tests compare. In lower precision they round where the model's own calls do.

In float32 on a CPU the queries, keys and values of a layer are one product, too, as are both inner products of an MLP,
and oneDNN reorders weights once instead of in every product: 1.1 to 2.7 times as fast for 8 to 64 rows. Elsewhere a
copy of the weights costs memory and gains less.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import rms_norm
from transformers.modeling_outputs import BaseModelOutputWithPast

from grpo.core.policy.blocks import SUPPORTED, can_pack
from grpo.core.policy.modules import CACHE_NAMES, is_its_own, is_plain

Product = Callable[[torch.Tensor], torch.Tensor]
_PARTS = {"Attention": ("q_proj", "k_proj", "v_proj"), "MLP": ("gate_proj", "up_proj"), "RMSNorm": (), "Model": ()}
_STEP = {"input_ids", "attention_mask", "position_ids"}  # what a step is given, and what it may be given
_ALSO = {"use_cache", "attention_prompts", *CACHE_NAMES}
_FIXED = {"default", "linear", "llama3", "yarn"}  # kinds of rotations that depend on the position alone
ROOM = 128  # positions that are computed ahead
ROWS = 64  # that weights are laid out for; it serves other numbers as well
LEAST = 2**16  # entries of a weight matrix that gains
FEWEST_TOKENS = 12  # of a completion: laying weights out costs as much as some decoding steps save


def product(layer: torch.nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the product of a layer that `gains`; it has a copy of its weights."""
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
    bias = None if layer.bias is None else layer.bias.detach()

    def times(rows: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows.float(), weight, bias, "none", [], "")
        return output.to(rows.dtype)

    return times


def gains(layer: Any) -> bool:
    """Returns whether a module is a linear layer, and nothing else, with weights that gain."""
    return is_plain(layer) and layer.weight.numel() >= LEAST and torch._C._has_mkldnn


def is_known(model: Any) -> bool:
    """Returns whether a model is of a family that the tests compare, with whole weights of one type."""
    weights = dict(model.named_parameters())
    plain = all(type(own.data) is torch.Tensor and not hasattr(own, "ds_id") for own in weights.values())
    dtypes = {own.dtype for name, own in weights.items() if ".lora_" not in name}
    known = plain and len(dtypes) == 1 and dtypes.pop().is_floating_point and can_pack(model.config)
    return known and any(parts(each) is not None for each in model.modules() if _kind(each) == "Model")


def is_precise(model: Any) -> bool:
    return {(own.dtype, own.device.type) for own in model.parameters()} == {(torch.float32, "cpu")}


def parts(module: Any) -> list[Any] | None:
    """Returns the layers of a module whose products can be one, none for a norm; None for modules of other kinds."""
    kind = _kind(module)
    if kind == "Model" and not all(_kind(layer) == "DecoderLayer" and is_its_own(layer) for layer in module.layers):
        return None
    return [getattr(module, part) for part in _PARTS[kind]] if kind in _PARTS else None


def joined(module: Any, product: Product | None) -> Callable[..., Any]:
    """Returns what computes a module with `parts`; `product` is that of all of them, side by side."""
    kind = _kind(module)
    if kind == "Attention":
        own = (module.q_proj, module.k_proj, module.v_proj)
        return _attention(module, product or (lambda rows: torch.cat([part(rows) for part in own], dim=-1)))
    if kind == "MLP":
        return _mlp(module, product)
    return _norm(module) if kind == "RMSNorm" else _backbone(module)


def one_of(layers: Sequence[torch.nn.Linear]) -> torch.nn.Linear:
    """Returns a linear layer that computes these side by side; all of them have a bias or none has."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    whole = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bool(biases), device="meta")
    whole.weight = torch.nn.Parameter(weight, requires_grad=False)
    if biases:
        whole.bias = torch.nn.Parameter(torch.cat(biases), requires_grad=False)
    return whole


def _kind(module: Any) -> str:
    """Returns what a module is, by the name that its class has in each family; "" for unknown classes."""
    kind = type(module)
    family = kind.__module__.rpartition("modeling_")[2]
    home = f"transformers.models.{family}.modeling_{family}"
    known = family in SUPPORTED and kind.__module__ == kind.forward.__module__ == home
    return kind.__name__.removeprefix(family.capitalize()) if known else ""


def _backbone(module: Any) -> Callable[..., Any]:
    plain = module.forward  # bound, before it is replaced
    rotations = _Rotations(module.rotary_emb)

    @functools.cache
    def layers() -> list[list[Callable[..., Any]]]:
        """Returns the four calls of each layer, none where a layer attends in its own way."""
        every = [
            [each.input_layernorm, each.self_attn, each.post_attention_layernorm, each.mlp] for each in module.layers
        ]
        known = all("forward" in vars(attention) for _, attention, *_ in every)
        return [[part.forward if "forward" in vars(part) else part for part in each] for each in every if known]

    def forward(**arguments: Any) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        cache = next((given[name] for name in CACHE_NAMES if name in given), None)
        known = cache is not None and _STEP <= given.keys() <= _STEP | _ALSO
        if not known or given["input_ids"].shape[1] != 1 or not layers():
            return plain(**arguments)
        mask = given["attention_mask"]
        visible = mask.bool()[:, None, None] if mask.ndim == 2 and not mask.all() else None
        hidden = module.embed_tokens(given["input_ids"])
        turned = rotations.at(given["position_ids"], hidden)
        options = {"attention_prompts": given["attention_prompts"]} if "attention_prompts" in given else {}
        for before, attend, between, mlp in layers():
            hidden = hidden + attend(before(hidden), turned, visible, cache, **options)[0]
            hidden = hidden + mlp(between(hidden))
        return BaseModelOutputWithPast(last_hidden_state=module.norm(hidden), past_key_values=cache)

    return forward


def _norm(module: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    weight, epsilon = module.weight.detach(), module.variance_epsilon

    def forward(hidden_states: torch.Tensor) -> torch.Tensor:
        if weight.dtype == torch.float32:
            return rms_norm(hidden_states, weight.shape, weight, epsilon)
        normed: torch.Tensor = weight * rms_norm(hidden_states, weight.shape, None, epsilon)
        return normed

    return forward


def _mlp(module: Any, product: Product | None) -> Callable[..., torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        gate, up = product(x).chunk(2, dim=-1) if product else (module.gate_proj(x), module.up_proj(x))
        output: torch.Tensor = module.down_proj(module.act_fn(gate).mul_(up))
        return output

    return forward


def _attention(module: Any, product: Product) -> Callable[..., tuple[torch.Tensor, None]]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    config, layer, size, scaling = module.config, module.layer_idx, module.head_dim, module.scaling
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    norms = (module.q_norm, module.k_norm) if hasattr(module, "q_norm") else None

    def forward(
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | _Turned,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        cache: Any = None,  # what newer releases of transformers call it
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        rows = hidden_states.shape[:-1]
        projected = product(hidden_states).view(*rows, -1, size)
        both, value = projected[..., : heads + shared, :], projected[..., heads + shared :, :].transpose(1, 2)
        if norms is not None:
            both = torch.cat([norms[0](both[..., :heads, :]), norms[1](both[..., heads:, :])], dim=-2)
        turned = position_embeddings if isinstance(position_embeddings, _Turned) else _Turned.of(*position_embeddings)
        both = turned.applied(both).transpose(1, 2)
        query, key = both[:, :heads], both[:, heads:]
        cache = past_key_values if cache is None else cache
        if cache is not None:
            key, value = cache.update(key, value, layer)
        attend = ALL_ATTENTION_FUNCTIONS[config._attn_implementation]
        attended, _ = attend(module, query, key, value, attention_mask, dropout=0.0, scaling=scaling, **options)
        return module.o_proj(attended.reshape(*rows, -1)), None

    return forward


class _Rotations:
    """The rotations of positions, each computed once where it depends on the position alone."""

    def __init__(self, rotary: Any) -> None:
        self._rotary, self._known = rotary, getattr(rotary, "rope_type", "") in _FIXED
        self._every: _Turned | None = None  # of one row that has all positions up to `_count`
        self._count = 0

    def at(self, positions: torch.Tensor, like: torch.Tensor) -> _Turned:
        if not self._known:
            return _Turned.of(*self._rotary(like, positions))
        most = int(positions.max()) + 1
        if self._every is None or most > self._count:
            self._count = most + ROOM
            self._every = _Turned.of(*self._rotary(like, torch.arange(self._count, device=positions.device)[None]))
        return self._every.at(positions)


class _Turned(NamedTuple):
    """The rotations of a step, [B, L, 1, D] each, as they are applied in every layer."""

    cos: torch.Tensor
    sin: torch.Tensor  # negative where it is applied to the second half of a head

    @classmethod
    def of(cls, cos: torch.Tensor, sin: torch.Tensor) -> _Turned:
        half = sin.shape[-1] // 2
        return cls(cos.unsqueeze(2), torch.cat([-sin[..., :half], sin[..., half:]], dim=-1).unsqueeze(2))

    def at(self, positions: torch.Tensor) -> _Turned:
        """Returns those of positions [B, L], where these are of one row that has all positions."""
        rows, shape = positions.view(-1), (*positions.shape, 1, -1)
        return _Turned(self.cos.index_select(1, rows).view(shape), self.sin.index_select(1, rows).view(shape))

    def applied(self, heads: torch.Tensor) -> torch.Tensor:
        half = heads.shape[-1] // 2
        other = torch.cat([heads[..., half:], heads[..., :half]], dim=-1)
        if heads.dtype == torch.float32:
            return torch.addcmul(heads * self.cos, other, self.sin)
        return heads * self.cos + other * self.sin
