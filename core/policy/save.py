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


def save_policy(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    state: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Writes a model, or only its trained adapter, with the tokenizer; the folder appears whole.

    Args:
        model: not wrapped.
        tokenizer: its tokenizer.
        folder: made.
        state: its weights, where the model itself has only a part of them (core/policy/whole.py).

    Raises:
        RunError: what was written is not all of the weights.
    """
    with whole_folder(folder) as unfinished:
        write_policy(model, tokenizer, unfinished, state)


def write_policy(
    model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path, state: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Writes into a folder that others write to as well; see `save_policy`.

    Raises:
        RunError: what was written is not all of the weights.
    """
    arguments: dict[str, Any] = {"selected_adapters": ["default"]} if hasattr(model, "peft_config") else {}
    if state is not None:
        arguments["state_dict"] = dict(state)
    model.save_pretrained(folder, **arguments)
    refuse_incomplete(folder, model)
    tokenizer.save_pretrained(folder)
