"""The short names of settings: a flag of `grpo run`, or a keyword of `grpo.train`, and the dotted key that it sets.

A flag that is not given leaves the key alone.
"""

from __future__ import annotations

FLAGS = {
    "model": "model",
    "dataset": "dataset",
    "out": "out",
    "seed": "seed",
    "steps": "train.steps",
    "epochs": "train.epochs",
    "limit": "train.limit",
    "lr": "train.lr",
    "group_size": "train.group_size",
    "prompts_per_step": "train.prompts_per_step",
    "micro_batch_size": "train.micro_batch_size",
    "warmup_steps": "train.warmup_steps",
    "checkpointing": "train.checkpointing",
    "loss": "loss.type",
    "beta": "loss.beta",
    "rollout": "rollout.backend",
    "server_url": "rollout.server_url",
    "lora_sync": "rollout.lora_sync",
    "overlap": "rollout.overlap",
    "share_weights": "rollout.share_weights",
    "temperature": "rollout.temperature",
    "max_prompt_length": "rollout.max_prompt_length",
    "max_completion_length": "rollout.max_completion_length",
    "lora": "lora.enabled",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
    "bits": "lora.bits",
    "eval_every": "evaluation.every",
    "eval_size": "evaluation.size",
    "save_every": "output.save_every",
    "canaries": "canaries.file",
    "canary_cases": "canaries.cases",
}
