"""Says what is not known of an agent's prompts before a run, and how to measure it."""

from __future__ import annotations

import shlex


def own_prompt(spec: str) -> str:
    """Returns a note for a run with this agent.

    Args:
        spec: the agent as the user named it.
    """
    return (
        "an agent sends prompts of its own, and their length is not known before a run; this measures the first: "
        f"grpo plugins check {shlex.quote(f'agent:{spec}')}"
    )
