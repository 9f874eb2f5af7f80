"""Defaults that are decided by the model and the machine: a configuration in, values out."""

from __future__ import annotations

from grpo.core.config.schema import Dtype, RunConfig

EMBEDDED_COMPLETION = 96  # tokens; the longest worked answer of the embedded problems has fewer
NAMED_COMPLETION = 512


def default_dtype(config: RunConfig) -> Dtype:
    """Returns bfloat16 for a model of the user's own on a GPU, else float32."""
    import torch

    return "bfloat16" if torch.cuda.is_available() and config.model is not None else "float32"
