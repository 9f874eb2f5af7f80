"""Writes seconds and moments (ISO 8601) as a few characters for people."""

from __future__ import annotations

from datetime import datetime


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def day_and_time(moment: str) -> str:
    """Returns a moment as this machine's clock has it, as `ls -l` does: "Nov 25 21:39", or "Nov 25 2025" of a year ago.

    `moment`: ISO 8601 with an offset from UTC; "" stands for one that nobody knows.
    """
    if not moment:
        return "-"
    local = datetime.fromisoformat(moment).astimezone()
    return f"{local:%b} {local.day:2} " + (f"{local:%H:%M}" if local.year == datetime.now().year else f"{local.year}")
