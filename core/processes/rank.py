"""Reads the rank of this process from the launcher's environment variables."""

from __future__ import annotations

import os

from grpo.plugins.errors import UsageError


def rank() -> int:
    """Returns the number of this process, from 0."""
    return _number("RANK", 0)


def count() -> int:
    """Returns how many processes train together."""
    return _number("WORLD_SIZE", 1)


def _number(name: str, alone: int) -> int:
    text = os.environ.get(name, str(alone))
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{name}='{text}' is no number. A launcher sets it; without one: unset {name}")
    return int(text)


def alone() -> bool:
    """Returns whether no launcher has said that there are others."""
    return os.environ.get("WORLD_SIZE", "1") == "1"


def is_first() -> bool:
    """Returns whether this is the process that writes files and prints."""
    return rank() == 0
