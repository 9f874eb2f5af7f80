"""Binds the agent of a run, and refuses settings that cannot be trained with an agent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from grpo.core.agents.presets.command_line import cmd, missing_script
from grpo.core.config.schema import RunConfig
from grpo.core.config.setting import PluginRef
from grpo.core.train.update.objective import refuse_trees
from grpo.plugins._spec.binding import BoundAdvantage, BoundAgent, BoundEnv, BoundLoss
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

# Settings of rollouts that are for agents alone.
AGENT_LIMITS = ("agent_seconds", "agents_at_once", "agent_trains", "agent_window")


def bound_agent(source: PluginRef | None, host: Host, envs: Sequence[BoundEnv]) -> BoundAgent | None:
    """Returns an agent that can answer the tasks of environments; None where none was named. Raises UsageError."""
    if source is None:
        return None
    agent = host.agent(source)
    for env in envs:
        if env.spec.played and not env.spec.in_session:
            other = "leave out mcp: an agent has tools of its own"
            if not env.servers:
                other = "choose an environment whose episodes ask once or have a session"
            raise UsageError(
                f"env '{env.name}' is played turn by turn, and an agent is given one task. Leave out --agent "
                f"{agent.name}, or {other}."
            )
    return agent


def decide_agent(
    config: RunConfig, host: Host, envs: Sequence[BoundEnv], loss: BoundLoss, advantage: BoundAdvantage
) -> BoundAgent | None:
    """Returns the agent that answers the environments' tasks; None: the policy answers itself. Raises UsageError."""
    agent = bound_agent(config.agent, host, envs)
    if agent is None:
        defaults = type(config.rollout).model_fields
        idle = [name for name in AGENT_LIMITS if getattr(config.rollout, name) != defaults[name].default]
        if idle:
            raise UsageError(f"rollout.{idle[0]}: the run has no agent. Name one with --agent, or leave it out.")
        return None
    if config.train.warmup_steps:
        raise UsageError(
            f"--warmup-steps {config.train.warmup_steps} does not go with --agent {agent.name}: worked answers are in "
            "the environment's form, and an agent's policy speaks in the agent's. Leave it out."
        )
    partial = bool(config.rollout.partial)
    refuse_trees(loss, advantage, own_head=config.train.head == "grpo", partial=partial)
    return agent


def agent_warning(agent: BoundAgent) -> str:
    """Returns what would make every episode of an agent fail, as far as that is seen before one; else ""."""
    return missing_script(str(agent.options["line"])) if agent.spec is cmd else ""


def own_prompt(source: str | Mapping[str, Any]) -> str:
    """Returns a note for a run with an agent, a SPEC or a table with its name."""
    spec = source if isinstance(source, str) else source["name"]
    return (
        "an agent sends prompts of its own, and their length is not known before a run; this measures the first: "
        f"grpo plugins check {shlex.quote(f'agent:{spec}')}"
    )
