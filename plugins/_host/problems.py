"""Describes a problem of an installed plugin: one line for users and a traceback for its author."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["broken", "contract", "misspelt", "invalid", "clash", "observer"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one entry point."""

    # "broken" (import or a hook raised), "contract" (the package was written for another contract), "misspelt" (a hook
    # that nothing calls), "invalid" (a hook returned something that is no usable spec), "clash" (another distribution
    # offers the name too), "observer" (`grpo_observe` raised)
    state: State
    distribution: str  # the distribution that declares the entry point
    distribution_version: str  # its version
    entry_point: str  # the name in the entry-point group
    line: str  # what happened, in one line
    traceback: str = ""  # the traceback as text, "" when nothing was raised
    plugin: str = ""  # the plugin that it is about, where that is known, as "reward:proximity"; otherwise ""
