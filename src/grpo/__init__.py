"""grpo: write rewards and environments for GRPO fine-tuning, and train with them.

Importing this package imports nothing else; every public name is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # that of typing, which is slow to import

if TYPE_CHECKING:
    from typing import Any

    from grpo.core.check.advantage import check_advantage
    from grpo.core.check.agent import check_agent
    from grpo.core.check.gold.validate import validate
    from grpo.core.check.loss import check_loss
    from grpo.core.check.reward import check_env, check_reward, check_verifier
    from grpo.core.check.sampler import check_sampler
    from grpo.core.check.sandbox import check_sandbox
    from grpo.core.check.session import check_session
    from grpo.core.run.python.comparison import Comparison, compare
    from grpo.core.run.python.result import Run, load
    from grpo.core.run.python.train import train
    from grpo.core.scoring.interop import to_inspect, to_trl, to_verifiers
    from grpo.core.scoring.scorer import Scorer
    from grpo.envs.shell.spec import shell_tasks
    from grpo.envs.text.spaces import AnyText
    from grpo.plugins.agent_decorator import agent
    from grpo.plugins.agents import Access, AgentCall, AgentTask, Command
    from grpo.plugins.decorators import reward, verifier
    from grpo.plugins.errors import (
        AmbiguousName,
        DatasetError,
        GrpoError,
        NotInstalled,
        OptionError,
        PluginError,
        PluginNotFound,
        RunError,
        SandboxUnavailable,
        SessionError,
        SessionLost,
        SpecError,
        TransientError,
        UsageError,
    )
    from grpo.plugins.events import RunEnded, RunStarted, StepEnded
    from grpo.plugins.factory_decorators import env, sandbox, session
    from grpo.plugins.from_trl import from_trl
    from grpo.plugins.hookspecs import hookimpl
    from grpo.plugins.host import Host
    from grpo.plugins.placed_rows import PlacedRows
    from grpo.plugins.pools import pool_of, run_jobs, sessions_of
    from grpo.plugins.rubric import Component, RubricSpec, rubric
    from grpo.plugins.sampling import RowsSeen, Visit
    from grpo.plugins.sandbox_job import Job, JobResult, Limits, SandboxPool
    from grpo.plugins.session import Exit, Process, Session, SessionJob, SessionLimits, SessionPool
    from grpo.plugins.specs import (
        AdvantageSpec,
        AgentSpec,
        EnvSpec,
        LossSpec,
        RewardSpec,
        SamplerSpec,
        SandboxSpec,
        SessionSpec,
        VerifierSpec,
    )
    from grpo.plugins.training import GroupScores, LossTokens, TokenCosts
    from grpo.plugins.training_decorators import advantage, loss, sampler
    from grpo.plugins.types import Case, Completion, Scored, Verdict

__version__ = "0.1.0"

__all__ = [
    "Access",
    "AdvantageSpec",
    "AgentCall",
    "AgentSpec",
    "AgentTask",
    "AmbiguousName",
    "AnyText",
    "Case",
    "Command",
    "Comparison",
    "Completion",
    "Component",
    "DatasetError",
    "EnvSpec",
    "Exit",
    "GroupScores",
    "GrpoError",
    "Host",
    "Job",
    "JobResult",
    "Limits",
    "LossSpec",
    "LossTokens",
    "NotInstalled",
    "OptionError",
    "PlacedRows",
    "PluginError",
    "PluginNotFound",
    "Process",
    "RewardSpec",
    "RowsSeen",
    "RubricSpec",
    "Run",
    "RunEnded",
    "RunError",
    "RunStarted",
    "SamplerSpec",
    "SandboxPool",
    "SandboxSpec",
    "SandboxUnavailable",
    "Scored",
    "Scorer",
    "Session",
    "SessionError",
    "SessionJob",
    "SessionLimits",
    "SessionLost",
    "SessionPool",
    "SessionSpec",
    "SpecError",
    "StepEnded",
    "TokenCosts",
    "TransientError",
    "UsageError",
    "Verdict",
    "VerifierSpec",
    "Visit",
    "advantage",
    "agent",
    "check_advantage",
    "check_agent",
    "check_env",
    "check_loss",
    "check_reward",
    "check_sampler",
    "check_sandbox",
    "check_session",
    "check_verifier",
    "compare",
    "env",
    "from_trl",
    "hookimpl",
    "load",
    "loss",
    "pool_of",
    "reward",
    "rubric",
    "run_jobs",
    "sampler",
    "sandbox",
    "session",
    "sessions_of",
    "shell_tasks",
    "to_inspect",
    "to_trl",
    "to_verifiers",
    "train",
    "validate",
    "verifier",
]

_HOMES = {
    "Access": "plugins.agents",
    "AdvantageSpec": "plugins.specs",
    "AgentSpec": "plugins.specs",
    "AgentCall": "plugins.agents",
    "AgentTask": "plugins.agents",
    "AmbiguousName": "plugins.errors",
    "AnyText": "envs.text.spaces",
    "Case": "plugins.types",
    "Command": "plugins.agents",
    "Comparison": "core.run.python.comparison",
    "Completion": "plugins.types",
    "Component": "plugins.rubric",
    "DatasetError": "plugins.errors",
    "EnvSpec": "plugins.specs",
    "Exit": "plugins.session",
    "GroupScores": "plugins.training",
    "GrpoError": "plugins.errors",
    "Host": "plugins.host",
    "Job": "plugins.sandbox_job",
    "JobResult": "plugins.sandbox_job",
    "Limits": "plugins.sandbox_job",
    "LossSpec": "plugins.specs",
    "LossTokens": "plugins.training",
    "NotInstalled": "plugins.errors",
    "OptionError": "plugins.errors",
    "PlacedRows": "plugins.placed_rows",
    "PluginError": "plugins.errors",
    "PluginNotFound": "plugins.errors",
    "Process": "plugins.session",
    "RewardSpec": "plugins.specs",
    "RowsSeen": "plugins.sampling",
    "RubricSpec": "plugins.rubric",
    "Run": "core.run.python.result",
    "RunEnded": "plugins.events",
    "RunError": "plugins.errors",
    "RunStarted": "plugins.events",
    "SamplerSpec": "plugins.specs",
    "SandboxPool": "plugins.sandbox_job",
    "SandboxSpec": "plugins.specs",
    "SandboxUnavailable": "plugins.errors",
    "Scored": "plugins.types",
    "Scorer": "core.scoring.scorer",
    "Session": "plugins.session",
    "SessionError": "plugins.errors",
    "SessionJob": "plugins.session",
    "SessionLimits": "plugins.session",
    "SessionLost": "plugins.errors",
    "SessionPool": "plugins.session",
    "SessionSpec": "plugins.specs",
    "SpecError": "plugins.errors",
    "StepEnded": "plugins.events",
    "TokenCosts": "plugins.training",
    "TransientError": "plugins.errors",
    "UsageError": "plugins.errors",
    "Verdict": "plugins.types",
    "VerifierSpec": "plugins.specs",
    "Visit": "plugins.sampling",
    "advantage": "plugins.training_decorators",
    "agent": "plugins.agent_decorator",
    "check_advantage": "core.check.advantage",
    "check_agent": "core.check.agent",
    "check_env": "core.check.env",
    "check_loss": "core.check.loss",
    "check_reward": "core.check.reward",
    "check_sampler": "core.check.sampler",
    "check_sandbox": "core.check.sandbox",
    "check_session": "core.check.session",
    "check_verifier": "core.check.reward",
    "compare": "core.run.python.comparison",
    "env": "plugins.factory_decorators",
    "from_trl": "plugins.from_trl",
    "hookimpl": "plugins.hookspecs",
    "load": "core.run.python.result",
    "loss": "plugins.training_decorators",
    "pool_of": "plugins.pools",
    "reward": "plugins.decorators",
    "rubric": "plugins.rubric",
    "run_jobs": "plugins.pools",
    "sampler": "plugins.training_decorators",
    "sandbox": "plugins.factory_decorators",
    "session": "plugins.factory_decorators",
    "sessions_of": "plugins.pools",
    "shell_tasks": "envs.shell.spec",
    "to_inspect": "core.scoring.interop",
    "to_trl": "core.scoring.interop",
    "to_verifiers": "core.scoring.interop",
    "train": "core.run.python.train",
    "validate": "core.check.gold.validate",
    "verifier": "plugins.decorators",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'grpo' has no attribute '{name}'", name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(f"grpo.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
