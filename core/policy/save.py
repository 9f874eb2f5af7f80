"""Writes the policy as a folder that transformers or PEFT loads, with all of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.policy.complete import refuse_incomplete
from grpo.core.record.run_dir import whole_folder

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase


def save_policy(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes a whole model, or its trained adapter, with the tokenizer; the folder appears whole, or RunError."""
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

    `model`: not wrapped; FSDP 2 and ZeRO-3 leave it a part of its weights. `tokenizer`: its tokenizer. `dtypes`: name
    of a parameter to the type that it is written in. `shared`: others write to the folder as well, as to a
    checkpoint's, so it does not appear whole. Raises RunError: what was written is not all of the weights.
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
    model.save_pretrained(folder, state_dict=state, **arguments)
    refuse_incomplete(folder, model)
    tokenizer.save_pretrained(folder)
