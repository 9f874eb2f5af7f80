"""Decides how trained weights reach the rollout engine, and refuses weights that cannot be transferred."""

from __future__ import annotations

from collections.abc import Mapping

from grpo.core.config.defaults import Dtype
from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import WeightSync
from grpo.core.processes.rank import count
from grpo.plugins.errors import UsageError


def decide_sync(config: RunConfig, dtype: Dtype) -> WeightSync:
    """Chooses what a server is sent after a step: all, or (in 16 bits) the few changes. Raises UsageError."""
    refuse_impossible_sync(config)
    asked = config.rollout.weight_sync
    if asked is None:
        travels = config.rollout.backend == "vllm-server" and (
            not config.lora.enabled or config.rollout.lora_sync == "folded"
        )
        asked = "delta" if travels and dtype != "float32" else "everything"
    return asked


def refuse_impossible_sync(config: RunConfig) -> None:
    """Refuses an engine whose weights could not be those that train, or not in time."""
    if config.rollout.ahead:
        refuse_impossible_ahead(config)
    if config.rollout.share_weights:
        refuse_impossible_sharing(config)
    if config.rollout.weight_sync in ("delta", "broadcast"):
        refuse_weights_that_stay(config)
    if config.rollout.backend != "hf" and config.lora.bits is not None:
        raise UsageError(
            "lora.bits with vLLM: the engine would serve other weights than the quantised ones that train. "
            "Leave --bits out, or sample with rollout.backend='hf'."
        )


def refuse_impossible_ahead(config: RunConfig) -> None:
    """Refuses to sample batches ahead where that would be wrong."""
    if config.rollout.backend == "hf":
        raise UsageError(
            "--ahead: the backend hf samples with the weights that train, so it cannot sample during training. "
            "Add --rollout vllm, which has its own weights, or leave --ahead out."
        )
    asked, several = f"--ahead {config.rollout.ahead}", config.rollout.ahead > 1
    wrong = {
        f"loss.num_iterations={config.loss.num_iterations}": (
            config.loss.num_iterations > 1,
            "rollouts would be several steps old before they train at all",
        ),
        "train.head='trl'": (config.train.head == "trl", "only our head corrects for rollouts of earlier steps"),
        "loss.rollout_correction='none'": (
            config.loss.rollout_correction == "none",
            "rollouts of earlier steps need to be corrected",
        ),
        "rollout.sleep=true": (bool(config.rollout.sleep), "the engine samples while the policy trains"),
        "rollout.backend='vllm'": (
            several and config.rollout.backend == "vllm",
            "an engine in this process shares its random numbers and its processors; use vllm-server, or --ahead 1",
        ),
        "rollout.refill": (
            several and config.rollout.refill > 0,
            "only one batch at a time is filled up; --ahead 1 is",
        ),
        "rollout.dynamic": (
            several and config.rollout.dynamic > 0,
            "only one batch at a time is filled up; --ahead 1 is",
        ),
        f"{count()} processes": (
            several and count() > 1,
            "each would need the others for every version of the policy; --ahead 1 works with several",
        ),
        "lora.dropout": (config.lora.dropout > 0, "it would draw from torch's generators while the engine does"),
    }
    refuse_together(asked, wrong)


def refuse_together(asked: str, wrong: Mapping[str, tuple[bool, str]]) -> None:
    """Refuses a setting with others that do not go with it. `wrong`: each with whether it is set, and why not."""
    for name, (present, reason) in wrong.items():
        if present:
            raise UsageError(f"{asked} with {name}: {reason}. Leave the one or the other out.")


def refuse_impossible_sharing(config: RunConfig) -> None:
    """Refuses one copy of the frozen weights where it cannot hold."""
    wrong = {
        f"--rollout {config.rollout.backend}": (config.rollout.backend != "vllm", "it is for vLLM in this process"),
        "full fine-tuning": (not config.lora.enabled, "every weight trains, so none can be shared; add --lora"),
        "lora.bits": (config.lora.bits is not None, "quantised weights have another form in the engine"),
        "--lora-sync folded": (config.rollout.lora_sync == "folded", "folding would write to the frozen weights"),
        "rollout.sleep=true": (bool(config.rollout.sleep), "an engine that sleeps takes the weights away"),
    }
    refuse_together("--share-weights", wrong)


def refuse_weights_that_stay(config: RunConfig) -> None:
    """Refuses a way to transfer weights that do not travel."""
    asked = f"rollout.weight_sync='{config.rollout.weight_sync}'"
    if config.rollout.backend != "vllm-server":
        raise UsageError(
            f"{asked} with --rollout {config.rollout.backend}: policy and engine are in one process, where weights are "
            "read and do not travel. Leave it out, or add --rollout vllm-server."
        )
    if config.lora.enabled and config.rollout.lora_sync == "adapter":
        raise UsageError(
            f"{asked} with --lora-sync adapter: the adapter alone travels after a step, and all of it changes. Leave "
            "the one or the other out."
        )
