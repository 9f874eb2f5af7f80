"""Who makes the passes over a tile: a tensor and its head in, the module out; Triton where it runs, else torch."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType

import torch

from grpo.kernels import torch_folds
from grpo.kernels.head import Head

HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton's own switch: its kernels then run in Python


def of(hidden: torch.Tensor, head: Head) -> ModuleType:
    """Returns `triton_folds` or `torch_folds`, which offer the same functions."""
    if HAS_TRITON and head.dtype != torch.float64 and (hidden.is_cuda or INTERPRETED):
        from grpo.kernels import triton_folds

        return triton_folds
    return torch_folds
