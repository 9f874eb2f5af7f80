"""Writes the policy: a model of transformers or PEFT in, a folder that they load with all of its weights out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.policy.complete import refuse_incomplete
from grpo.core.record.run_dir import whole_folder

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase


def save_policy(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes a model that is whole, or only its trained adapter, with the tokenizer; the folder appears whole.

    Raises:
        RunError: what was written is not all of the weights.
    """
    with whole_folder(folder) as unfinished:
        _write(model, tokenizer, unfinished, None)


def save_whole(
    model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path, dtypes: Mapping[str, torch.dtype], *, first: bool
) -> None:
    """Writes a policy as `save_policy` does, however it is sharded. Collective.

    Args:
        model: not wrapped; FSDP 2 and ZeRO-3 leave it a part of its weights.
        tokenizer: its tokenizer.
        folder: made, by the first process.
        dtypes: name of a parameter to the type that it is written in.
        first: this is the first process.

    Raises:
        RunError: what was written is not all of the weights.
    """
    state = _state(model, dtypes, first=first)
    if first:
        with whole_folder(folder) as unfinished:
            _write(model, tokenizer, unfinished, state)


def write_whole(
    model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path, dtypes: Mapping[str, torch.dtype], *, first: bool
) -> None:
    """Does the same in a folder that others write to as well. Collective.

    Raises:
        RunError: what was written is not all of the weights.
    """
    state = _state(model, dtypes, first=first)
    if first:
        folder.mkdir(parents=True, exist_ok=True)
        _write(model, tokenizer, folder, state)


def _state(model: Any, dtypes: Mapping[str, torch.dtype], *, first: bool) -> dict[str, torch.Tensor] | None:
    from grpo.core.policy.whole import is_sharded, whole_state

    return whole_state(model, dtypes, keep=first) if is_sharded(model) else None


def _write(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path, state: dict[str, torch.Tensor] | None) -> None:
    arguments: dict[str, Any] = {"selected_adapters": ["default"]} if hasattr(model, "peft_config") else {}
    model.save_pretrained(folder, state_dict=state, **arguments)
    refuse_incomplete(folder, model)
    tokenizer.save_pretrained(folder)
