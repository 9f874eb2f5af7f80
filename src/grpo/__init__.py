"""grpo: write rewards and environments for GRPO fine-tuning, and train with them.

Importing this package imports nothing else; every public name is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo.core.check.gold.validate import validate
    from grpo.core.check.reward import check_env, check_reward, check_verifier
    from grpo.core.check.sandbox import check_sandbox
    from grpo.core.run.python import train
    from grpo.core.run.result import Run, load
    from grpo.core.scoring.interop import to_inspect, to_trl, to_verifiers
    from grpo.plugins.decorators import reward, verifier
    from grpo.plugins.from_trl import from_trl
    from grpo.plugins.hookspecs import hookimpl
    from grpo.plugins.rubric import Component, RubricSpec, rubric
    from grpo.plugins.specs import EnvSpec, RewardSpec, SandboxSpec, VerifierSpec
    from grpo.plugins.types import Case, Completion, Scored, Verdict

__version__ = "0.1.0"

__all__ = [
    "Case",
    "Completion",
    "Component",
    "EnvSpec",
    "RewardSpec",
    "RubricSpec",
    "Run",
    "SandboxSpec",
    "Scored",
    "Verdict",
    "VerifierSpec",
    "check_env",
    "check_reward",
    "check_sandbox",
    "check_verifier",
    "from_trl",
    "hookimpl",
    "load",
    "reward",
    "rubric",
    "to_inspect",
    "to_trl",
    "to_verifiers",
    "train",
    "validate",
    "verifier",
]

_HOMES = {
    "Case": "plugins.types",
    "Completion": "plugins.types",
    "Component": "plugins.rubric",
    "EnvSpec": "plugins.specs",
    "RewardSpec": "plugins.specs",
    "RubricSpec": "plugins.rubric",
    "Run": "core.run.result",
    "SandboxSpec": "plugins.specs",
    "Scored": "plugins.types",
    "Verdict": "plugins.types",
    "VerifierSpec": "plugins.specs",
    "check_env": "core.check.env",
    "check_reward": "core.check.reward",
    "check_sandbox": "core.check.sandbox",
    "check_verifier": "core.check.reward",
    "from_trl": "plugins.from_trl",
    "hookimpl": "plugins.hookspecs",
    "load": "core.run.result",
    "reward": "plugins.decorators",
    "rubric": "plugins.rubric",
    "to_inspect": "core.scoring.interop",
    "to_trl": "core.scoring.interop",
    "to_verifiers": "core.scoring.interop",
    "train": "core.run.python",
    "validate": "core.check.gold.validate",
    "verifier": "plugins.decorators",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'grpo' has no attribute '{name}'")
    return getattr(importlib.import_module(f"grpo.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
