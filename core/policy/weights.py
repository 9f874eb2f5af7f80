"""Finds the weights that a user names: the embedded model, a model, an adapter, or what a run has trained so far."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo.core.config.defaults import Dtype, default_completion, dtype_of
from grpo.core.config.schema import RunConfig, load_config
from grpo.core.config.sections import LoraSection
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import PolicySource, load_policy, policy_source, refuse_impossible_lora
from grpo.core.record.checkpoint import checkpoint_step, damage, last_checkpoint
from grpo.core.record.run_dir import RunDir, is_run, open_run_dir
from grpo.core.record.versions import silence_libraries
from grpo.plugins.errors import UsageError, did_you_mean

ADAPTER_CONFIG = "adapter_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
BASE_FOLDER = "base"  # in an exported adapter: the embedded model, which no hub has


@dataclass(frozen=True, slots=True)
class RunWeights:
    folder: Path  # a folder of transformers or PEFT
    step: int  # after which they were saved
    steps: int  # how many the run was to make
    final: bool  # the run is done; otherwise the folder is its last whole checkpoint


@dataclass(frozen=True, slots=True)
class Weights:
    name: str  # for people
    base: str  # a folder or hub id with a whole model
    adapter: str | None  # a folder or hub id of PEFT that goes on top, or None
    config: RunConfig | None  # the settings of the run that made it; None for a model that comes from elsewhere
    embedded: bool  # the base is the embedded model, or was trained from it
    run: RunDir | None = None  # which run they come from, or None
    trained: RunWeights | None = None  # where the run's weights stand, or None

    @property
    def note(self) -> str | None:
        """A line worth reading when these are not the weights of a finished run."""
        if self.trained is None or self.trained.final:
            return None
        return (
            f"{self.name} is not finished: these are the weights after step {self.trained.step} of "
            f"{self.trained.steps}, its last checkpoint."
        )

    @property
    def max_tokens(self) -> int:
        """How many new tokens a completion has at most, unless the user says otherwise."""
        if self.config is not None and self.config.rollout.max_completion_length is not None:
            return self.config.rollout.max_completion_length
        return default_completion(embedded=self.embedded)

    @property
    def dtype(self) -> Dtype:
        """What the run trained in, or what a run of this model would."""
        if self.config is not None:
            return dtype_of(self.config.train.dtype, self.config.model)
        return dtype_of(None, None if self.embedded else self.base)

    @property
    def tokenizer_source(self) -> str:
        """Where the tokenizer is: a run's or adapter's folder, else the base's."""
        if self.trained is not None:
            return str(self.trained.folder)
        if self.adapter is not None and (Path(self.adapter) / TOKENIZER_CONFIG).is_file():
            return self.adapter
        return self.base


def find_weights(model: str | None, adapter: str | None = None) -> Weights:
    """Finds a hub id, a model's folder, an adapter's folder or a run directory; None: the embedded model.

    `adapter`: a folder or hub id of PEFT to put on top. Raises UsageError for none, no weights yet, or two adapters.
    """
    weights = _find(model)
    if adapter is None:
        return weights
    if weights.adapter is not None:
        raise UsageError(
            f"{weights.name} is an adapter itself, so --adapter {adapter} cannot go on top. Leave one out."
        )
    folder = Path(adapter).expanduser()
    if is_run(folder):
        raise UsageError(f"--adapter {adapter} is a run directory. Name it with --model: it knows its own base model.")
    if (folder.exists() or adapter.startswith((".", "/", "~"))) and not (folder / ADAPTER_CONFIG).is_file():
        raise UsageError(f"--adapter {adapter}: no {ADAPTER_CONFIG} in that folder. Name a folder saved by PEFT.")
    shown = str(folder) if folder.exists() else adapter
    return replace(weights, name=f"{weights.name} with {adapter}", adapter=shown)


def find_run_weights(path: Path) -> Weights:
    """Finds what a run has trained: its final model, or else its last whole checkpoint. Raises UsageError."""
    run = open_run_dir(path)
    config = run_config(run)
    base = policy_source(config.model)
    steps, damaged = config.train.steps or 0, list[str]()
    if run.model.is_dir():
        if problem := damage(run.model):
            raise UsageError(
                f"{run.model} was damaged: {problem}. Remove that folder, then make it again from the last checkpoint "
                f"with: grpo run --resume {shlex.quote(str(path))}"
            )
        trained = RunWeights(run.model, steps, steps, final=True)
    elif (checkpoint := last_checkpoint(run, damaged.append)) is not None:
        trained = RunWeights(checkpoint, checkpoint_step(checkpoint), steps, final=False)
    else:
        resume = f"grpo run --resume {shlex.quote(str(path))}"
        if damaged:
            raise UsageError(f"{path} has no whole weights left. {' '.join(damaged)} Begin it again with: {resume}")
        raise UsageError(
            f"{path} has no weights yet: neither a model nor a whole checkpoint. "
            f"Wait for the first one, or continue the run with: {resume}"
        )
    adapted = (trained.folder / ADAPTER_CONFIG).is_file()
    return Weights(
        name=str(path),
        base=base.path if adapted else str(trained.folder),
        adapter=str(trained.folder) if adapted else None,
        config=config,
        embedded=base.embedded,
        run=run,
        trained=trained,
    )


def run_config(run: RunDir) -> RunConfig:
    """Reads the settings of a run; weights that it brought along are found where the run is now. Raises UsageError."""
    config = load_config(run.config, [], {})
    return config.model_copy(update={"model": str(run.base)}) if run.base.is_dir() else config


def training_source(model: str | None) -> PolicySource:
    """Returns where a run that is to train this begins: a model, a run's weights, or an adapter. Raises UsageError."""
    weights = find_weights(model)
    if weights.trained is None and weights.adapter is None:
        return policy_source(model)
    step = "" if weights.trained is None else f", step {weights.trained.step}"
    trained = f"{Path(weights.name).expanduser().resolve().name}{step}"
    return PolicySource(weights.base, weights.embedded, trained, weights.tokenizer_source)


def load_weights(weights: Weights) -> Any:
    """Loads a model for inference, on the GPU where there is one. Raises UsageError if something cannot be loaded."""
    import torch

    # Without a GPU, an adapter that was trained on quantised weights goes on the plain ones.
    trained = weights.config.lora.bits if weights.config is not None and weights.adapter is not None else None
    bits = trained if torch.cuda.is_available() else None
    lora = LoraSection(bits=bits)
    refuse_impossible_lora(lora)
    silence_libraries()
    model = load_policy(weights.base, weights.dtype, lora, adapter=weights.adapter, trainable=False)
    if torch.cuda.is_available() and bits is None:
        model = model.to("cuda")
    return model.eval()


def _find(model: str | None) -> Weights:
    if model is None:
        source = policy_source(None)
        return Weights("the embedded model", source.path, None, None, embedded=True)
    folder = Path(model).expanduser()
    if is_run(folder):
        return find_run_weights(folder)
    if is_adapter(folder):
        return _exported(model, folder)
    if not folder.exists():
        refuse_missing_run(folder)
    source = policy_source(model)
    return Weights(model, source.path, None, None, embedded=source.embedded)


def _exported(model: str, folder: Path) -> Weights:
    try:
        base = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{folder / ADAPTER_CONFIG} cannot be read: {error}") from None
    exported = (folder / BASE_FOLDER / "config.json").is_file()
    if exported:  # the folder may have been moved since
        base = str(folder / BASE_FOLDER)
    if not base:
        raise UsageError(f"{folder / ADAPTER_CONFIG} names no base model. Name one with --model, this with --adapter.")
    embedded = exported or Path(base).expanduser().resolve() == embedded_model_path().resolve()
    return Weights(model, base, str(folder), None, embedded=embedded)


def is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def refuse_missing_run(folder: Path) -> None:
    """Refuses a missing path beside runs before it is taken for a hub id. Raises UsageError."""
    if not folder.parent.is_dir() or folder.parent == Path():
        return
    runs = [child.name for child in folder.parent.iterdir() if is_run(child)]
    if runs:
        close = did_you_mean(folder.name, runs)
        listed = f"grpo runs {shlex.quote(str(folder.parent))}"
        raise UsageError(f"there is no run or model '{folder}'.{close} List the runs with: {listed}")
