"""Streams the policy's weights under their checkpoint names, or its adapter alone, with a fingerprint of each.

A LoRA is sent folded: each adapted weight as W + scaling * B @ A, out of place and one at a time, so that the frozen W
never drifts. Or alone: A and B, with each module's scaling multiplied into B, because engines read one scaling for the
whole adapter and silently serve `alpha_pattern`, `rank_pattern` and rank-stabilised adapters wrongly.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from grpo.core.policy.whole import full_tensors
from grpo.plugins.errors import UsageError

ADAPTER = "default"  # the name of the adapter that trains
PROBED = 8  # columns of a matrix that a fingerprint reads
TIED_HEAD = "lm_head.weight"
NOTHING: Mapping[str, torch.dtype] = MappingProxyType({})
PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter as an engine takes it: y = W x + B (A x)."""

    rank: int
    # name under PEFT's conventions to A [r, in] or B [out, r]; B carries the scaling
    tensors: Mapping[str, torch.Tensor]

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors.values())

    @property
    def ranks(self) -> dict[str, int]:
        return {name: t.shape[0] if ".lora_A." in name else t.shape[1] for name, t in self.tensors.items()}


def has_adapter(model: Any) -> bool:
    return ADAPTER in getattr(model, "peft_config", {})


def refuse_unservable_adapter(model: Any) -> None:
    """Refuses adapters that an engine would serve wrongly or that are more than A and B."""
    config = model.peft_config[ADAPTER]
    extra = {
        "use_dora": bool(getattr(config, "use_dora", False)),
        "lora_bias": bool(getattr(config, "lora_bias", False)),
        "bias": getattr(config, "bias", "none") != "none",
        "modules_to_save": bool(getattr(config, "modules_to_save", None)),
        "trainable_token_indices": bool(getattr(config, "trainable_token_indices", None)),
        "init_lora_weights": _rewrites_the_base(getattr(config, "init_lora_weights", True)),
    }
    wrong = [name for name, present in extra.items() if present]
    kind = str(getattr(config, "peft_type", "LORA")).rpartition(".")[2]
    if kind != "LORA":
        wrong.append(f"peft_type={kind}")
    for name, module in _adapted(model):
        if not isinstance(module.get_base_layer(), torch.nn.Linear):
            wrong.append(f"an adapter of {name}, which is not a linear layer")
            break
    if wrong:
        raise UsageError(
            f"vLLM cannot serve this adapter faithfully: it uses {', '.join(wrong)}. Use a plain or rank-stabilised "
            "LoRA adapter of linear layers, or sample with rollout.backend='hf'."
        )


def adapter_of(model: Any) -> Adapter:
    """Copies a PEFT model's adapter, B scaled. Collective. Raises UsageError if engines would serve it wrongly."""
    refuse_unservable_adapter(model)
    tensors: dict[str, torch.Tensor] = {}
    rank = 1
    with torch.no_grad():
        for name, module in _adapted(model):
            a, b = _factors(module)
            rank = max(rank, int(a.shape[0]))
            # Copies: engines may scale or move what they are given in place.
            dtype = module.get_base_layer().weight.dtype  # what the engine computes in; PEFT may keep A and B finer
            tensors[f"{PEFT_PREFIX}{name}.lora_A.weight"] = a.to(dtype, copy=True)
            tensors[f"{PEFT_PREFIX}{name}.lora_B.weight"] = (b * module.scaling[ADAPTER]).to(dtype)
    return Adapter(rank, tensors)


def adapted_modules(model: Any) -> list[str]:
    """Returns the last parts of the names of the adapted modules, sorted, each once."""
    return sorted({name.rpartition(".")[2] for name, _ in _adapted(model)})


def frozen_parameters(model: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yields the frozen parameters of a PEFT model under their checkpoint names; tied ones once."""
    for name, parameter in model.get_base_model().named_parameters():
        if not parameter.requires_grad and ".lora_" not in name:
            yield name.replace(".base_layer.", "."), parameter


def loaded_types(model: Any) -> dict[str, torch.dtype]:
    """Returns the type of every weight by its checkpoint name."""
    if has_adapter(model):
        model = model.get_base_model()
    return {
        name.replace(".base_layer.", "."): parameter.dtype
        for name, parameter in model.named_parameters()
        if ".lora_" not in name
    }


def weight_stream(
    model: Any, *, base: bool = False, types: Mapping[str, torch.dtype] = NOTHING
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every weight under its checkpoint name, whole, one at a time; with `base` without the adapter. Collective.

    A head that is tied to the embedding is yielded too: engines may keep a packed copy of it that the embedding's
    update does not reach. `types`: of weights that train in another one than engines serve. Raises UsageError if the
    adapter cannot be folded.
    """
    wrapped, folded = model, {}
    if has_adapter(model):
        refuse_unservable_adapter(model)
        folded = {} if base else {f"{name}.weight": module for name, module in _adapted(model)}
        model = model.get_base_model()
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is embedding
    (first,) = [name for name, parameter in model.named_parameters() if parameter is embedding]
    for name, whole in full_tensors(wrapped):
        if ".lora_" in name:
            continue
        plain = name.removeprefix(PEFT_PREFIX).replace(".base_layer.", ".")
        weight = _folded(whole, folded[plain]) if plain in folded else whole
        weight = weight.to(types.get(plain, weight.dtype))
        yield plain, weight
        if tied and plain == first:
            yield TIED_HEAD, weight


class Recorder:
    """Passes a stream on; records fingerprints and bytes, those of a tied head behind its embedding once."""

    def __init__(self, stream: Iterator[tuple[str, torch.Tensor]], seed: int) -> None:
        self._stream = stream
        self._seed = seed
        self.fingerprints: dict[str, int] = {}
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        before: torch.Tensor | None = None
        for name, tensor in self._stream:
            self.fingerprints[name] = fingerprint(probe(tensor, self._seed))
            if tensor is not before:
                self.bytes += tensor.numel() * tensor.element_size()
            before = tensor
            yield name, tensor


def columns(width: int, seed: int) -> torch.Tensor:
    """Returns the column numbers [PROBED] int64 on the CPU that a fingerprint with this seed reads."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(width, (PROBED,), generator=generator)


def probe(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns what a fingerprint reads: a few columns [N, PROBED] of a matrix, enough to see a step, or the whole."""
    if tensor.ndim != 2:
        return tensor
    return tensor[:, columns(tensor.shape[1], seed).to(tensor.device)]


def fingerprint(values: torch.Tensor) -> int:
    flat = values.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(flat.numpy().tobytes())


def fingerprints(tensors: Mapping[str, torch.Tensor], seed: int) -> dict[str, int]:
    return {name: fingerprint(probe(tensor, seed)) for name, tensor in tensors.items()}


def differing(expected: Mapping[str, int], served: Mapping[str, int]) -> list[str]:
    """Returns the expected names that are not served, or served with other values."""
    return [name for name, value in expected.items() if served.get(name) != value]


def _adapted(model: Any) -> Iterator[tuple[str, Any]]:
    from peft.tuners.lora import LoraLayer

    for name, module in model.get_base_model().named_modules():
        if isinstance(module, LoraLayer) and ADAPTER in (*module.lora_A, *module.lora_embedding_A):
            yield name, module


def _rewrites_the_base(how: Any) -> bool:
    """Returns whether an adapter begins by changing the frozen weights (PiSSA, OLoRA, CorDA, LoftQ)."""
    return isinstance(how, str) and how.lower().startswith(("pissa", "olora", "corda", "loftq", "lora_ga"))


def _factors(module: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _whole(module.lora_A[ADAPTER]), _whole(module.lora_B[ADAPTER])


def _whole(factor: torch.nn.Linear) -> torch.Tensor:
    (weight,) = [tensor.clone() for _, tensor in full_tensors(factor)]
    return weight


def _folded(weight: torch.Tensor, module: Any) -> torch.Tensor:
    """Returns W + scaling * B @ A, the sum in float32 and rounded once to the weight's own type."""
    a, b = _factors(module)
    delta = (b.float() @ a.float()) * module.scaling[ADAPTER]
    result: torch.Tensor = (weight.float() + delta).to(weight.dtype)
    return result
