"""Reads the rank of this process from the launcher's environment variables."""

from __future__ import annotations

import os


def rank() -> int:
    """Returns the number of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def count() -> int:
    """Returns how many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Returns whether this is the process that writes files and prints."""
    return rank() == 0
