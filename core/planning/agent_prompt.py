"""Says what is not known of an agent's prompts before a run, and how to measure it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any


def own_prompt(source: str | Mapping[str, Any]) -> str:
    """Returns a note for a run with an agent.

    Args:
        source: the agent as the user named it, a SPEC or a table with its name.
    """
    spec = source if isinstance(source, str) else source["name"]
    return (
        "an agent sends prompts of its own, and their length is not known before a run; this measures the first: "
        f"grpo plugins check {shlex.quote(f'agent:{spec}')}"
    )
