"""Binds the agent of a run, and refuses what cannot be trained with one."""

from __future__ import annotations

from collections.abc import Sequence

from grpo.core.config.schema import RunConfig
from grpo.plugins._spec.binding import BoundAdvantage, BoundAgent, BoundEnv
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host


def decide_agent(
    config: RunConfig, host: Host, envs: Sequence[BoundEnv], advantage: BoundAdvantage
) -> BoundAgent | None:
    """Returns the agent that answers the environments' tasks; None: the policy answers itself.

    Raises:
        UsageError: it does not exist or cannot start, or does not go with other settings; says what to change.
    """
    if config.agent is None:
        idle = [
            name
            for name in ("agent_seconds", "agents_at_once", "agent_window")
            if name in config.rollout.model_fields_set
        ]
        if idle:
            raise UsageError(f"rollout.{idle[0]}: the run has no agent. Name one with --agent, or leave it out.")
        return None
    agent = host.agent(config.agent)
    played = [env.name for env in envs if env.spec.played]
    wrong = {
        f"env '{played[0] if played else ''}'": (
            bool(played),
            "it is played turn by turn, and an agent is given one task. Choose one whose episodes ask once",
        ),
        f"--partial {config.rollout.partial}": (config.rollout.partial, "an agent cannot be left in the middle"),
        "train.head='trl'": (config.train.head == "trl", "only our head trains rollouts of several rows"),
        f"--advantage {advantage.name}": (advantage.spec.turns, "an agent's rollout has one score and no turns"),
        f"--warmup-steps {config.train.warmup_steps}": (
            config.train.warmup_steps,
            "worked answers are in the environment's form, and an agent's policy speaks in the agent's",
        ),
    }
    for name, (present, reason) in wrong.items():
        if present:
            raise UsageError(f"{name} does not go with --agent {agent.name}: {reason}.")
    return agent
