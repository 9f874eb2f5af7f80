"""Decides whether an episode reached its goal, by how it ended and its reward; None where that is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Goal = Literal["paid", "ends", "lasts", "unknown"]


def reached(goal: Goal | None, rewards: Sequence[float], *, ended: bool, cut: bool) -> bool | None:
    """Returns whether the goal was reached, None where that is unknown.

    `goal`: what success is: "paid" (it terminates with a reward above 0), "ends" (it terminates), "lasts" (its own time
    limit is reached), "unknown" (no episode says), or None where nobody has written it down. `cut`: the environment's
    own limit did.
    """
    if goal == "unknown":
        return None
    if goal == "lasts":
        return cut and not ended
    if goal == "ends":
        return ended
    *before, last = rewards
    if goal is None:
        if any(reward > 0 for reward in before):  # it pays along the way, so pay at the end says nothing
            return None
        if ended and before and 0 > last >= min(before) and max(before) < 0:  # each step costs, the last one no more
            return None
    return ended and last > 0
