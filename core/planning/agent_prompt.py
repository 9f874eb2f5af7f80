"""Says what is not known of an agent's prompts before a run, and how to measure it."""

from __future__ import annotations

import shlex

from grpo.core.config.section import PluginRef


def own_prompt(spec: PluginRef) -> str:
    """Returns a note for a run with this agent.

    Args:
        spec: the agent as the user named it.
    """
    name = spec if isinstance(spec, str) else str(spec["name"])
    return (
        "an agent sends prompts of its own, and their length is not known before a run; this measures the first: "
        f"grpo plugins check {shlex.quote(f'agent:{name}')}"
    )
