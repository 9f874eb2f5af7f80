"""Reads the sharding from the variables of `accelerate launch`, and refuses what is not supported.

DDP; FSDP 2 by torch; ZeRO-1, 2, 3 by DeepSpeed, of the optimizer, its gradients and the weights.
"""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpo.plugins.errors import RunError, UsageError

CONFIG_FILE = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
AUTO = "auto"  # of DeepSpeed: whoever trains fills it in
OURS = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")


@dataclass(frozen=True, slots=True)
class Sharding:
    library: Literal["FSDP", "DeepSpeed"]  # whose sharding
    stage: int  # version of FSDP, or stage of ZeRO

    @property
    def weights(self) -> bool:
        """Whether a process has a part of the weights only."""
        return self.library == "FSDP" or self.stage == 3

    def __str__(self) -> str:
        return f"FSDP {self.stage}" if self.library == "FSDP" else f"DeepSpeed ZeRO-{self.stage}"


def asked_sharding() -> Sharding | None:
    """Reads what `accelerate launch` set; None: nothing is sharded. Raises UsageError."""
    if _is_set("ACCELERATE_USE_DEEPSPEED"):
        return Sharding("DeepSpeed", _zero_stage())
    if _is_set("ACCELERATE_USE_FSDP"):
        return Sharding("FSDP", int(os.environ.get("FSDP_VERSION", "1")))
    return None


def refuse_unfit_sharding(sharding: Sharding, dtype: str, *, gpu: bool) -> None:
    """Refuses what cannot work, before anything is loaded. Raises UsageError with the remedy."""
    if "LOCAL_RANK" not in os.environ:
        raise UsageError(
            f"{sharding} was asked for, and there is one process, in which nothing would be sharded. Start several "
            "with accelerate launch --num_processes, or take the sharding out of accelerate's configuration."
        )
    if sharding.library == "FSDP" and sharding.stage != 2:
        raise UsageError(
            f"{sharding} was asked for: only FSDP 2 is supported. Set fsdp_version: 2 in accelerate's configuration, "
            "or start with accelerate launch --fsdp_version 2."
        )
    if sharding.library == "DeepSpeed":
        if importlib.util.find_spec("deepspeed") is None:
            raise UsageError(
                f"{sharding} was asked for, and DeepSpeed is not installed. Install it with: "
                "pip install 'grpo-kit[deepspeed]'"
            )
        settings = _settings()
        if settings is not None:
            _refuse_settings(settings)
        if dtype != "float32" and not gpu:
            raise UsageError(
                f"{sharding} trains weights of 16 bits on GPUs only, and this machine has none. Set "
                "train.dtype='float32'."
            )


def join(sharding: Sharding | None, **options: Any) -> Any:
    """Connects this process to the others; returns accelerate's `PartialState`, which takes the options once."""
    import torch
    from accelerate import PartialState

    if speaks_by_gloo(sharding):
        return PartialState(backend="gloo", **options)
    return PartialState(cpu=not torch.cuda.is_available(), **options)


def speaks_by_gloo(sharding: Sharding | None) -> bool:
    """Returns whether this is DeepSpeed on a CPU; accelerate, told of a CPU, would leave DeepSpeed out."""
    import torch

    return sharding is not None and sharding.library == "DeepSpeed" and not torch.cuda.is_available()


def refuse_lost_sharding(sharding: Sharding, state: Any) -> None:
    """Refuses, once the processes have met, to train as DDP what was to be sharded. Raises UsageError."""
    # With that variable, accelerate's next look at the processes would find no DeepSpeed.
    kind = "MULTI_CPU" if _is_set("ACCELERATE_USE_CPU") else str(state.distributed_type).rpartition(".")[2]
    lost = kind != "DEEPSPEED" if sharding.library == "DeepSpeed" else kind in ("NO", "MULTI_CPU")
    if lost:
        raise UsageError(
            f"{sharding} was asked for, and accelerate would not shard: it takes the processes for {kind} on "
            f"{state.device.type}, where each would hold the whole policy. FSDP needs GPUs; for DeepSpeed on a CPU "
            "set DS_ACCELERATOR=cpu and leave ACCELERATE_USE_CPU out. Or take the sharding out of its configuration."
        )


def refuse_unsharded(sharding: Sharding | None, wrapped: Any, *, sharded: bool) -> None:
    """Refuses a policy that was not wrapped as was asked for, before its first step. Raises RunError."""
    if sharding is None:
        return
    engine = type(wrapped).__name__ == "DeepSpeedEngine"
    if sharded != sharding.weights or engine != (sharding.library == "DeepSpeed"):
        raise RunError(
            f"{sharding} was requested, but the policy trains as a {type(wrapped).__name__} whose weights are "
            f"{'sharded' if sharded else 'whole on every process'}. Nothing was trained. Check accelerate's "
            "configuration, and that its auto wrap policy names layers of this model."
        )


def settle_launcher(sharding: Sharding | None) -> None:
    """Sets launcher variables that are the plan's: accumulation, and FSDP's loading by all processes."""
    if sharding is not None and sharding.library == "FSDP":
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    if sharding is not None and sharding.library == "DeepSpeed":
        os.environ["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = os.environ["ACCELERATE_GRADIENT_CLIPPING"] = AUTO


def _is_set(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("true", "1", "yes", "on", "y", "t")


def _zero_stage() -> int:
    settings = _settings()
    if settings is None:
        return int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))
    zero = settings.get("zero_optimization")
    stage = zero.get("stage") if isinstance(zero, dict) else None
    if stage not in (1, 2, 3):
        raise UsageError(f"{os.environ[CONFIG_FILE]}: zero_optimization.stage is {stage!r}. Choose 1, 2 or 3.")
    return int(stage)


def _settings() -> dict[str, Any] | None:
    file = os.environ.get(CONFIG_FILE, "none")
    if file == "none":
        return None
    try:
        settings = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{CONFIG_FILE}={file} cannot be read: {error}. Name a JSON file of DeepSpeed.") from None
    if not isinstance(settings, dict):
        raise UsageError(f"{CONFIG_FILE}={file} holds no settings. Name a JSON file of DeepSpeed.")
    return settings


def _refuse_settings(settings: dict[str, Any]) -> None:
    file = os.environ[CONFIG_FILE]
    for name in OURS:
        if settings.get(name) != AUTO:
            state = f"is {settings[name]!r}" if name in settings else "is missing"
            raise UsageError(f'{file}: {name} {state}. Write "{name}": "{AUTO}": it follows from the run\'s settings.')
    if settings.get("train_batch_size", AUTO) != AUTO:
        raise UsageError(f"{file}: leave train_batch_size out: it follows from the run's settings.")
    for name, ours in (("optimizer", "train.lr and train.weight_decay"), ("scheduler", "train.lr_schedule")):
        if name in settings:
            raise UsageError(f"{file}: leave {name} out: the run's own is used. Set {ours}.")
