"""Chooses the module that makes the passes over a tile: Triton where it runs, else torch."""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from types import ModuleType

import torch

from grpo.kernels import torch_folds
from grpo.kernels.head import Head

HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton's own switch: its kernels then run in Python


def of(hidden: torch.Tensor, head: Head) -> ModuleType:
    """Returns `triton_folds` or `torch_folds`, which offer the same functions."""
    if HAS_TRITON and head.dtype != torch.float64 and (INTERPRETED or (hidden.is_cuda and triton_starts())):
        from grpo.kernels import triton_folds

        return triton_folds
    return torch_folds


@functools.cache
def triton_starts() -> bool:
    """Returns whether Triton finds a GPU and can build its driver; if not, warns once with the reason."""
    from triton.runtime import driver

    try:
        driver.active.get_current_target()
    except Exception as error:
        warnings.warn(
            f"Triton cannot start here, so the passes over logits run in torch, which takes longer: {error} Where it "
            "misses a C compiler, install one (on Debian and Ubuntu: apt install gcc libc6-dev), or name one in CC.",
            stacklevel=2,
        )
        return False
    return True
