"""Declares the ten hooks. A plugin package names a module with implementations in the entry-point group "grpo"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from grpo.plugins.events import Event
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

PROJECT = "grpo"
ENTRY_POINT_GROUP = "grpo"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def grpo_rewards() -> list[RewardSpec]:  # type: ignore[empty-body]
    """Returns the rewards that this plugin offers."""


@hookspec
def grpo_verifiers() -> list[VerifierSpec]:  # type: ignore[empty-body]
    """Returns the verifiers that this plugin offers."""


@hookspec
def grpo_envs() -> list[EnvSpec]:  # type: ignore[empty-body]
    """Returns the environments that this plugin offers."""


@hookspec
def grpo_sandboxes() -> list[SandboxSpec]:  # type: ignore[empty-body]
    """Returns the sandboxes that this plugin offers."""


@hookspec
def grpo_sessions() -> list[SessionSpec]:  # type: ignore[empty-body]
    """Returns the sessions that this plugin offers."""


@hookspec
def grpo_losses() -> list[LossSpec]:  # type: ignore[empty-body]
    """Returns the losses that this plugin offers."""


@hookspec
def grpo_advantages() -> list[AdvantageSpec]:  # type: ignore[empty-body]
    """Returns the advantages that this plugin offers."""


@hookspec
def grpo_samplers() -> list[SamplerSpec]:  # type: ignore[empty-body]
    """Returns the samplers that this plugin offers."""


@hookspec
def grpo_agents() -> list[AgentSpec]:  # type: ignore[empty-body]
    """Returns the agents that this plugin offers."""


@hookspec
def grpo_observe(event: Event) -> None:
    """Watches a run: started, step ended, run ended. Read-only; a failing observer never stops a run."""
