"""How the weights that train reach the engine that samples: a configuration in; what could not be right is refused."""

from __future__ import annotations

from grpo.core.config.schema import RunConfig
from grpo.plugins.errors import UsageError


def refuse_impossible_sync(config: RunConfig) -> None:
    """Refuses an engine whose weights could not be those that train, or not in time.

    Raises:
        UsageError: names the setting and the remedy.
    """
    if config.rollout.overlap:
        refuse_impossible_overlap(config)
    if config.rollout.share_weights:
        refuse_impossible_sharing(config)
    if config.rollout.backend != "hf" and config.lora.bits is not None:
        raise UsageError(
            "lora.bits with vLLM: the engine would serve other weights than the quantised ones that train. "
            "Leave --bits out, or sample with rollout.backend='hf'."
        )


def refuse_impossible_overlap(config: RunConfig) -> None:
    """Refuses to sample one batch ahead where that would be wrong.

    Raises:
        UsageError: names the setting and the remedy.
    """
    if config.rollout.backend == "hf":
        raise UsageError(
            "--overlap: the backend hf samples with the very weights that train, so it cannot sample beside training. "
            "Add --rollout vllm, whose engine has weights of its own, or leave --overlap out."
        )
    wrong = {
        f"loss.num_iterations={config.loss.num_iterations}": (
            config.loss.num_iterations > 1,
            "rollouts would be several steps old before they train at all",
        ),
        "train.head='trl'": (config.train.head == "trl", "only our head corrects for rollouts of the step before"),
        "loss.rollout_correction='none'": (
            config.loss.rollout_correction == "none",
            "rollouts of the step before need to be corrected",
        ),
        "rollout.sleep=true": (bool(config.rollout.sleep), "the engine samples while the policy trains"),
        "lora.dropout": (config.lora.dropout > 0, "it would draw from torch's generators while the engine does"),
    }
    for name, (present, reason) in wrong.items():
        if present:
            raise UsageError(f"--overlap with {name}: {reason}. Leave the one or the other out.")


def refuse_impossible_sharing(config: RunConfig) -> None:
    """Refuses one copy of the frozen weights where it cannot hold.

    Raises:
        UsageError: names the setting and the remedy.
    """
    wrong = {
        f"--rollout {config.rollout.backend}": (config.rollout.backend != "vllm", "it is for vLLM in this process"),
        "full fine-tuning": (not config.lora.enabled, "every weight trains, so none can be shared; add --lora"),
        "lora.bits": (config.lora.bits is not None, "quantised weights have another form in the engine"),
        "--lora-sync folded": (config.rollout.lora_sync == "folded", "folding would write to the frozen weights"),
        "rollout.sleep=true": (
            bool(config.rollout.sleep),
            "an engine that sleeps takes the weights away",
        ),
    }
    for name, (present, reason) in wrong.items():
        if present:
            raise UsageError(f"--share-weights with {name}: {reason}. Leave the one or the other out.")
