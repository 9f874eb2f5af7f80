"""Lists rules, action names and success conditions of well-known environments."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Goal = Literal["paid", "ends", "lasts", "unknown"]


@dataclass(frozen=True, slots=True)
class Known:
    """Words for an environment."""

    rules: str = ""  # what is to be done; "" when nobody has written it down
    actions: tuple[str, ...] = ()  # a word for each discrete action, in order
    fields: tuple[str, ...] = ()  # a word for each part of an observation that is a tuple
    goal: Goal | None = None  # what success is; None when nobody has written it down


@cache
def _known() -> Mapping[str, Known]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    goals = {name: Known(goal=goal) for goal, names in table["goals"].items() for name in names}
    return goals | {
        name: Known(row.get("rules", ""), tuple(row.get("actions", ())), tuple(row.get("fields", ())), row["goal"])
        for name, row in table["known"].items()
    }


def known_environment(class_name: str) -> Known:
    return _known().get(class_name, Known())


def reached(goal: Goal | None, rewards: Sequence[float], *, ended: bool, cut: bool) -> bool | None:
    """Returns whether the goal was reached, None where that is unknown.

    `goal`: "paid" (the episode terminates with a reward above 0), "ends" (it terminates), "lasts" (its own time limit
    is reached), "unknown", or None where nobody has written it down. `cut`: the environment's own limit was reached.
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
