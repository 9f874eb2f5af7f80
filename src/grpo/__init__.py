"""grpo: write rewards and environments for GRPO fine-tuning, and train with them.

Importing this package imports nothing else; every public name is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo.plugins.decorators import reward, verifier
    from grpo.plugins.hookspecs import hookimpl
    from grpo.plugins.specs import EnvSpec, RewardSpec, SandboxSpec, VerifierSpec
    from grpo.plugins.types import Case, Completion, Verdict

__version__ = "0.1.0"

__all__ = [
    "Case",
    "Completion",
    "EnvSpec",
    "RewardSpec",
    "SandboxSpec",
    "Verdict",
    "VerifierSpec",
    "hookimpl",
    "reward",
    "verifier",
]

_HOMES = {
    "Case": "types",
    "Completion": "types",
    "EnvSpec": "specs",
    "RewardSpec": "specs",
    "SandboxSpec": "specs",
    "Verdict": "types",
    "VerifierSpec": "specs",
    "hookimpl": "hookspecs",
    "reward": "decorators",
    "verifier": "decorators",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'grpo' has no attribute '{name}'")
    return getattr(importlib.import_module(f"grpo.plugins.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
