"""Translates a `Plan` into keyword arguments of TRL's configurations, without importing TRL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from grpo.core.plan import Plan
from grpo.core.processes.sharding import asked_sharding, speaks_by_gloo
from grpo.plugins._host.discovery import BUILT_IN, normalized
from grpo.plugins._spec.binding import BoundLoss
from grpo.plugins.errors import UsageError

PROJECT = "grpo"  # where the charts stand, unless a setting or the tracker's own variable names another
TRL_LOSSES: Mapping[str, Mapping[str, Any]] = {  # our losses that TRL has, and what it calls them
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "sapo": {"loss_type": "sapo"},
    "luspo": {"loss_type": "luspo"},
    "vespo": {"loss_type": "vespo"},
    "entropy_bonus": {"loss_type": "dapo"},
    "top_entropy": {"loss_type": "dapo"},
}
_ARGUMENTS = {  # options to TRL's arguments, where their names differ
    "temperature_pos": "sapo_temperature_pos",
    "temperature_neg": "sapo_temperature_neg",
    "k_pos": "vespo_k_pos",
    "k_neg": "vespo_k_neg",
    "lambda_pos": "vespo_lambda_pos",
    "lambda_neg": "vespo_lambda_neg",
    "coefficient": "entropy_coef",
    "share": "top_entropy_quantile",
}


def grpo_arguments(plan: Plan, output_dir: Path) -> dict[str, Any]:
    """Arguments of `GRPOConfig`; every step generates once and is logged."""
    config, train, loss = plan.config, plan.config.train, plan.config.loss
    return {
        "output_dir": str(output_dir),
        "log_level_replica": "error",  # as on the first process, where it is ours to say
        "max_steps": train.steps,
        "num_generations": train.group_size,
        "per_device_train_batch_size": train.micro_batch_size,
        "gradient_accumulation_steps": plan.accumulation,
        "steps_per_generation": plan.accumulation,
        "learning_rate": train.lr,
        "lr_scheduler_type": train.lr_schedule,
        "warmup_steps": train.lr_warmup_steps,
        "adam_beta1": train.adam_beta1,
        "adam_beta2": train.adam_beta2,
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.max_grad_norm,
        "gradient_checkpointing": train.checkpointing != "none",
        # A reentrant checkpoint saves its inputs through autograd, where core/train/update/offload.py can take them.
        "gradient_checkpointing_kwargs": {
            "use_reentrant": train.checkpointing == "offload",
            # An engine that samples beside the backward pass draws from torch's generators; nothing else may set them.
            "preserve_rng_state": not config.rollout.ahead,
        },
        "max_completion_length": plan.longest_sampled,
        "temperature": config.rollout.temperature,
        **loss_arguments(plan.loss),
        "beta": loss.beta,
        "use_bias_correction_kl": loss.use_bias_correction_kl,
        "mask_truncated_completions": loss.mask_truncated_completions,
        "scale_rewards": plan.advantage.options.get("scale", "group"),  # to compare; advantages are always ours
        "num_iterations": loss.num_iterations,
        "shuffle_dataset": False,  # row_order fixes the order of the whole run
        "save_steps": config.output.save_every,
        "save_total_limit": None,  # older ones go when the new one is whole, see drop_older
        "report_to": [],  # the trackers are ours
        "run_name": config.output.run_name or output_dir.parent.name,
        "seed": config.seed,
        **_common_arguments(train.dtype),
    }


def loss_arguments(loss: BoundLoss) -> dict[str, Any]:
    """Returns what makes TRL's own head compute the same loss; empty where TRL has no such loss."""
    if normalized(loss.distribution) != BUILT_IN or loss.name not in TRL_LOSSES:
        return {}
    options = {option.name: option.default for option in loss.spec.options} | dict(loss.options)
    return {**TRL_LOSSES[loss.name], **{_ARGUMENTS.get(name, name): value for name, value in options.items()}}


def refuse_unfit_head(head: str, loss: BoundLoss) -> None:
    """Refuses TRL's head for a loss that TRL does not have."""
    if head == "trl" and not loss_arguments(loss):
        raise UsageError(
            f"TRL's head has no loss '{loss.name}' of {loss.distribution}. Choose one of {', '.join(TRL_LOSSES)} with "
            "--loss, or leave train.head='trl' out (mixture-of-experts models always use TRL's head)."
        )


def warmup_arguments(plan: Plan, output_dir: Path) -> dict[str, Any]:
    """Arguments of `SFTConfig` for the supervised steps before GRPO."""
    train = plan.config.train
    return {
        "output_dir": str(output_dir),
        "log_level_replica": "error",  # as on the first process, where it is ours to say
        "max_steps": train.warmup_steps,
        "per_device_train_batch_size": train.micro_batch_size,
        "gradient_accumulation_steps": plan.accumulation,
        "learning_rate": train.warmup_lr,
        "lr_scheduler_type": "linear",
        "max_length": None,  # no limit
        "completion_only_loss": True,
        "gradient_checkpointing": train.checkpointing != "none",
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "save_strategy": "no",
        "report_to": [],
        "seed": plan.config.seed,
        **_common_arguments(train.dtype),
    }


def _common_arguments(dtype: str) -> dict[str, Any]:
    on_gpu, by_gloo = torch.cuda.is_available(), speaks_by_gloo(asked_sharding())
    return {
        "use_cpu": not on_gpu and not by_gloo,
        "ddp_backend": "gloo" if by_gloo else None,
        "bf16": on_gpu and dtype == "bfloat16",
        "fp16": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": on_gpu,
    }
