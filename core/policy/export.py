"""Writes the weights of a run, or an adapter, for transformers and PEFT, into a folder that loads without grpo.

trained all weights     a model's folder
LoRA                    an adapter's folder that names its base model; base/ holds the embedded one
LoRA, merged            a model's folder
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from grpo.core.config.sections import LoraSection
from grpo.core.policy.load import load_model, load_policy, load_tokenizer
from grpo.core.policy.save import save_policy
from grpo.core.policy.weights import ADAPTER_CONFIG, BASE_FOLDER, Weights
from grpo.core.record.disk import refuse_full_disk
from grpo.core.record.run_dir import whole_folder
from grpo.core.record.versions import silence_libraries
from grpo.plugins.errors import RunError, UsageError

# What the trainer keeps beside the weights in a checkpoint.
TRAINING_STATE = ("optimizer*", "scheduler*", "scaler*", "rng_state*", "trainer_state.json", "training_args.bin")
# What FSDP and DeepSpeed keep there: their own shards, and DeepSpeed's scripts to put them together.
SHARDS = ("pytorch_model_fsdp*", "global_step*", "latest", "zero_to_fp32.py", "zero_to_torch.py")
OURS = ("complete.json", "ahead*.json", "README.md")


def export_weights(weights: Weights, folder: Path, *, merge: bool) -> Path:
    """Writes the weights into `folder`, new or empty, whole or not at all; returns it, absolute.

    `merge`: add the adapter to its base model. Raises UsageError if the folder cannot be used, or the base model cannot
    be loaded; RunError if the disk is full, or the merged weights are not finite.
    """
    folder = folder.expanduser().resolve()
    refuse_folder(folder)
    silence_libraries()
    try:
        if weights.adapter is None:
            assert weights.trained is not None
            _copy(weights.trained.folder, folder)
        elif merge:
            _merge(weights, folder)
        else:
            _copy_adapter(weights, weights.adapter, folder)
    except OSError as error:
        first = error.args[0][0][-1] if isinstance(error, shutil.Error) else error  # of all that it could not copy
        raise RunError(f"cannot write {folder}: {first}. Nothing was left there.") from error
    return folder


def refuse_folder(folder: Path) -> None:
    """Refuses a folder that holds something or that cannot be made. Raises UsageError with the reason."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file. Name a new folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty, and nothing is overwritten. Name a new folder.")
    if folder == Path.cwd():
        raise UsageError("the current folder cannot be replaced while you stand in it. Name a new folder.")
    parent = folder.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write in {parent}. Choose a folder that you may write to.")


def _copy(source: Path, folder: Path) -> None:
    _refuse_full_disk(folder, _bytes(source))
    with whole_folder(folder) as unfinished:
        _copy_into(source, unfinished)


def _copy_adapter(weights: Weights, source: str, folder: Path) -> None:
    """Copies the adapter, and the embedded base model, which is on no hub; other bases stay where they are."""
    adapter, base = Path(source), Path(weights.base).expanduser()
    embedded = weights.embedded
    _refuse_full_disk(folder, _bytes(adapter) + (_bytes(base) if embedded else 0))
    with whole_folder(folder) as unfinished:
        _copy_into(adapter, unfinished)
        named = weights.base
        if embedded:
            save_policy(load_model(weights.base, "float32"), load_tokenizer(weights.base), unfinished / BASE_FOLDER)
            named = str(folder / BASE_FOLDER)
        elif base.is_dir():
            named = str(base.resolve())
        settings = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        settings["base_model_name_or_path"] = named
        (unfinished / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _merge(weights: Weights, folder: Path) -> None:
    """Adds the adapter in float32 to the unquantised base and rounds once, to the dtype that the run trained with."""
    import torch

    dtype = getattr(torch, weights.dtype)
    model = load_policy(weights.base, "float32", LoraSection(), adapter=weights.adapter, trainable=False)
    if not hasattr(model, "merge_and_unload"):  # it changes what goes into the model, and no weights
        kind = model.peft_config["default"].peft_type.value
        raise UsageError(
            f"{weights.name} is an adapter of the kind {kind}, which cannot be merged into its base model."
        )
    try:
        merged = model.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise RunError(f"cannot merge the adapter of {weights.name}: {error}") from error
    merged = merged.to(dtype)
    _refuse_full_disk(folder, sum(p.numel() * p.element_size() for p in merged.parameters()))
    save_policy(merged, load_tokenizer(weights.tokenizer_source), folder)


def _copy_into(source: Path, folder: Path) -> None:
    left_out = shutil.ignore_patterns(*TRAINING_STATE, *SHARDS, *OURS)
    shutil.copytree(source, folder, ignore=left_out, dirs_exist_ok=True)


def _refuse_full_disk(folder: Path, needed: int) -> None:
    refuse_full_disk(folder, needed, "the export", "Free some space or choose another disk.")


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
