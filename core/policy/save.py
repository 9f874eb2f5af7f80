"""Writes the policy as a folder that transformers or PEFT loads, and checks that all weights are there."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.record.run_dir import whole_folder
from grpo.plugins.errors import RunError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

Shapes = Mapping[str, tuple[int, ...]]


def save_policy(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes a whole model, or its trained adapter, with the tokenizer; the folder appears whole. Raises RunError."""
    with whole_folder(folder) as unfinished:
        _write(model, tokenizer, unfinished, None)


def save_whole(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    dtypes: Mapping[str, torch.dtype],
    *,
    first: bool,
    shared: bool = False,
) -> None:
    """Writes a policy as `save_policy` does, however it is sharded. Collective.

    `model`: not wrapped; FSDP 2 and ZeRO-3 leave it a part of its weights. `dtypes`: of parameters in the file.
    `shared`: others write to the folder as well, so it does not appear whole. Raises RunError if not all weights were
    written.
    """
    from grpo.core.policy.whole import is_sharded, whole_state

    state = whole_state(model, dtypes, keep=first) if is_sharded(model) else None
    if not first:
        return
    if shared:
        folder.mkdir(parents=True, exist_ok=True)
    with nullcontext(folder) if shared else whole_folder(folder) as place:
        _write(model, tokenizer, place, state)


def _write(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path, state: dict[str, torch.Tensor] | None) -> None:
    arguments: dict[str, Any] = {"selected_adapters": ["default"]} if hasattr(model, "peft_config") else {}
    with system_errors(folder):
        model.save_pretrained(folder, state_dict=state, **arguments)
        refuse_incomplete(folder, model)
        tokenizer.save_pretrained(folder)


@contextmanager
def system_errors(folder: Path) -> Iterator[None]:
    """Raises OSError for errors that safetensors and tokenizers make of what the system refuses."""
    try:
        yield
    except Exception as error:
        if number := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder)) from error
        raise


def refuse_incomplete(folder: Path, model: Any) -> None:
    """Refuses weights that are not all there; RunError names the first tensor that is empty, cut or missing."""
    written = written_shapes(folder)
    problem = problem_of(written, _adapter(model) if hasattr(model, "peft_config") else _whole(model))
    if problem is not None:
        raise RunError(
            f"the weights in {folder} are incomplete: {problem}. They will not be used. Resume from the previous "
            "checkpoint, and please report this with the model's name and its sharding."
        )


def written_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns name to shape for every tensor in the safetensors of a folder."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    return shapes


def problem_of(written: Shapes, due: Shapes) -> str | None:
    """Returns what is wrong with the written shapes, or None; under other names the number of elements must agree."""
    for name, shape in written.items():
        if 0 in shape and 0 not in due.get(name, ()):
            return f"{name} is empty, with shape {list(shape)}"
        if name in due and shape != due[name]:
            return f"{name} has shape {list(shape)}, not {list(due[name])}"
    missing = [name for name in due if name not in written]
    if missing and written.keys() <= due.keys():
        return f"{missing[0]} is missing, and {len(missing) - 1} more of {len(due)} tensors"
    here, all_of_them = (sum(map(math.prod, shapes.values())) for shapes in (written, due))
    return None if here == all_of_them else f"they have {here} elements, and the model has {all_of_them}"


def _whole(model: Any) -> dict[str, tuple[int, ...]]:
    """Returns what a model of this configuration saves; tied weights once, under the name that is kept."""
    import torch
    from torch.distributed.fsdp import FSDPModule

    # By its own class: `from_config` has every process help to shard what it makes, where ZeRO-3 is on.
    kind: Any = next(kind for kind in type(model).__mro__ if not issubclass(kind, FSDPModule))
    with torch.device("meta"):
        empty = kind(copy.deepcopy(model.config))
    tied = set(empty.all_tied_weights_keys)
    return {name: tuple(tensor.shape) for name, tensor in empty.state_dict().items() if name not in tied}


def _adapter(model: Any) -> dict[str, tuple[int, ...]]:
    from grpo.core.policy.whole import full_shape

    return {
        name.replace(".default", ""): full_shape(parameter)
        for name, parameter in model.named_parameters()
        if ".lora_" in name and ".default" in name
    }
