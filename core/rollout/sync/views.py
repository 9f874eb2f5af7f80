"""Reads weights as an engine computes with them, under the names of the checkpoint.

Theory of operation. vLLM fuses projections, pads the vocabulary, and on CPU repacks matrices into a form that cannot be
read back. A matrix is therefore read through its own multiplication: one-hot rows times W^T are columns of W, exactly,
and no unused copy of it.

The ranks of a tensor-parallel engine split a layer by its outputs (rows of W; each of several fused matrices by itself)
or by its inputs (columns of W). What is not split is the same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.rollout.sync.payload import PROBED, columns, fingerprint, probe

WRAPPED = ".base_layer"  # what the engine's own LoRA layers call the layer inside


@dataclass(frozen=True, slots=True)
class Shards:
    """How a model is split; all ranks ask for the same things in the same order."""

    number: int = 1
    # this rank's tensor [...] to those of all ranks [number, ...], in the order of the ranks
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor[None]


WHOLE = Shards()


def joined_rows(module: Any, values: torch.Tensor, shards: Shards) -> torch.Tensor:
    """Returns the rows of all ranks for this rank's [n, ...], fused matrices one after the other."""
    if shards.number == 1 or not _splits_rows(module):
        return values
    everyone = shards.gather(values)
    sizes = getattr(module, "output_partition_sizes", None) or [values.shape[0]]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return torch.cat([everyone[:, end - n : end].flatten(0, 1) for n, end in zip(sizes, ends, strict=True)])


def local_width(module: Any, width: int) -> int:
    """Returns how many of the `width` columns of a module's matrix this rank holds."""
    return int(getattr(module, "input_size_per_partition", width))


def picked_columns(values: torch.Tensor, owners: torch.Tensor, shards: Shards) -> torch.Tensor:
    """Returns [N, P]: column i of the rank `owners[i]`, from this rank's [N, P]."""
    if shards.number == 1:
        return values
    return shards.gather(values)[owners, :, torch.arange(len(owners))].T


def joined_adapter(module: Any, letter: str, factor: torch.Tensor, shards: Shards) -> torch.Tensor:
    """Returns the whole A [r, in] or B [out, r] of a layer that is adapted, from this rank's part of it."""
    if shards.number == 1:
        return factor
    if letter == "A" and local_width(module, module.input_size) < module.input_size:
        return shards.gather(factor).transpose(0, 1).flatten(1, 2)
    if letter == "B" and _splits_rows(module):
        return shards.gather(factor).flatten(0, 1)
    return factor


def _splits_rows(module: Any) -> bool:
    if hasattr(module, "org_vocab_size"):
        return True
    rows = getattr(module, "output_size", None)
    return bool(rows is not None and getattr(module, "output_size_per_partition", rows) < rows)


def engine_fingerprints(model: Any, seed: int, shards: Shards = WHOLE) -> dict[str, int]:
    """Returns checkpoint name to fingerprint for every weight that the engine holds."""
    with torch.no_grad():
        return {name: fingerprint(values) for name, values in _probes(model, seed, shards)}


def adapter_fingerprints(
    manager: Any, number: int, seed: int, ranks: dict[str, int], shards: Shards = WHOLE
) -> dict[str, int]:
    """Returns the fingerprints of the LoRA layers' stacked tensors, each cut to its rank (PEFT name to rank)."""
    if number not in manager.lora_index_to_id:
        return {}
    slot = manager.lora_index_to_id.index(number)
    fingerprints: dict[str, int] = {}
    for engine_name, module in manager.modules.items():
        stem = engine_name.rpartition(".")[0]
        parts = manager.packed_modules.get(engine_name) or [engine_name]
        for i, part in enumerate(parts):
            name = f"base_model.model.{part if '.' in part else f'{stem}.{part}'}"
            for letter, stacked in (("A", module.lora_a_stacked), ("B", module.lora_b_stacked)):
                key = f"{name}.lora_{letter}.weight"
                if key in ranks and i < len(stacked):
                    whole = stacked[i][slot, 0]
                    cut = whole[: ranks[key]] if letter == "A" else whole[:, : ranks[key]]
                    factor = joined_adapter(module.base_layer, letter, cut, shards)
                    fingerprints[key] = fingerprint(probe(factor, seed))
    return fingerprints


def parts_of(model: Any, name: str, module: Any) -> list[tuple[str, int, int]]:
    """Returns (checkpoint name of the module, first row, end row) for each matrix that a module of the engine fuses."""
    stem, _, last = name.rpartition(".")
    fused = getattr(model, "packed_modules_mapping", {}).get(last)
    if not fused:
        rows = getattr(module, "org_vocab_size", None) or getattr(module, "output_size", None)
        return [(name, 0, rows if rows is not None else module.weight.shape[0])]
    sizes = list(module.output_sizes)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [(f"{stem}.{part}", end - size, end) for part, size, end in zip(fused, sizes, ends, strict=True)]


def engine_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields the modules that own weights, with their names free of the engine's LoRA wrapping."""
    for name, module in model.named_modules():
        own = [key for key, _ in module.named_parameters(recurse=False)]
        if own:
            yield name.replace(WRAPPED, ""), module


def engine_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields checkpoint name and tensor for every weight that the engine keeps plain; fused ones as views of a part."""
    for name, module in engine_modules(model):
        for key, parameter in module.named_parameters(recurse=False):
            parts = parts_of(model, name, module)
            whole = len(parts) == 1 and parameter.ndim == 1
            for part, first, end in parts if parameter.numel() else ():
                yield f"{part}.{key}", parameter.data if whole else parameter.data[first:end]


def _probes(model: Any, seed: int, shards: Shards) -> Iterator[tuple[str, torch.Tensor]]:
    for name, module in engine_modules(model):
        for key, parameter in module.named_parameters(recurse=False):
            if key == "weight" and (parameter.ndim == 2 or parameter.numel() == 0):
                values = _matrix_columns(module, parameter, seed, shards)
            elif parameter.ndim == 1:
                values = parameter
            else:
                continue
            values = joined_rows(module, values, shards)
            parts = parts_of(model, name, module)
            whole = parameter.ndim == 1 and len(parts) == 1
            for part, first, end in parts:
                yield f"{part}.{key}", values if whole else values[first:end]


def _matrix_columns(module: Any, weight: torch.Tensor, seed: int, shards: Shards) -> torch.Tensor:
    width = getattr(module, "input_size", None) or getattr(module, "embedding_dim", None) or weight.shape[1]
    chosen, here = columns(width, seed), local_width(module, width)
    if hasattr(module, "cpu_linear"):
        rows = torch.zeros(PROBED, here, dtype=weight.dtype, device=weight.device)
        rows[torch.arange(PROBED), chosen % here] = 1.0
        values = module.quant_method.apply(module, rows, None).T
    else:
        values = weight[:, (chosen % here).to(weight.device)]
    return values if here == width else picked_columns(values, chosen // here, shards)
