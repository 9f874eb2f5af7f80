"""Defaults that the model and the machine decide: a configuration in, values out."""

from __future__ import annotations

from grpo.core.config.schema import Dtype, RunConfig

EMBEDDED_COMPLETION = 96  # tokens; the longest worked answer of the embedded problems has fewer
NAMED_COMPLETION = 512


def dtype_of(config: RunConfig) -> Dtype:
    """Returns the data type of the weights: the user's, else bfloat16 for a named model on a GPU, else float32."""
    import torch

    if config.train.dtype is not None:
        return config.train.dtype
    return "bfloat16" if torch.cuda.is_available() and config.model is not None else "float32"


def default_completion(*, embedded: bool) -> int:
    """Returns the tokens after which completions are cut, unless the user says otherwise."""
    return EMBEDDED_COMPLETION if embedded else NAMED_COMPLETION
