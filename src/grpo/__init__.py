"""grpo: write rewards and environments for GRPO fine-tuning, and train with them.

Importing this package imports nothing else; every public name is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo.core.check import check_env, check_reward, check_verifier
    from grpo.core.check_sandbox import check_sandbox
    from grpo.core.interop import to_inspect, to_trl, to_verifiers
    from grpo.core.validate import validate
    from grpo.plugins.decorators import reward, verifier
    from grpo.plugins.factory_decorators import env, sandbox
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
    "SandboxSpec",
    "Scored",
    "Verdict",
    "VerifierSpec",
    "check_env",
    "check_reward",
    "check_sandbox",
    "check_verifier",
    "env",
    "from_trl",
    "hookimpl",
    "reward",
    "rubric",
    "sandbox",
    "to_inspect",
    "to_trl",
    "to_verifiers",
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
    "SandboxSpec": "plugins.specs",
    "Scored": "plugins.types",
    "Verdict": "plugins.types",
    "VerifierSpec": "plugins.specs",
    "check_env": "core.check_env",
    "check_reward": "core.check",
    "check_sandbox": "core.check_sandbox",
    "check_verifier": "core.check",
    "env": "plugins.factory_decorators",
    "from_trl": "plugins.from_trl",
    "hookimpl": "plugins.hookspecs",
    "reward": "plugins.decorators",
    "rubric": "plugins.rubric",
    "sandbox": "plugins.factory_decorators",
    "to_inspect": "core.interop",
    "to_trl": "core.interop",
    "to_verifiers": "core.interop",
    "validate": "core.validate",
    "verifier": "plugins.decorators",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'grpo' has no attribute '{name}'")
    return getattr(importlib.import_module(f"grpo.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
