"""Lists what a policy needs to know of well-known environments: rules, words for actions, and what their goal is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Goal = Literal["paid", "ends", "lasts", "unknown"]


@dataclass(frozen=True, slots=True)
class Known:
    """Words for an environment."""

    rules: str = ""  # what is to be done; "" when nobody has written it down
    actions: tuple[str, ...] = ()  # a word for each discrete action, in order
    fields: tuple[str, ...] = ()  # a word for each part of an observation that is a tuple
    goal: Goal | None = None  # what success is; None when nobody has written it down


_WITHOUT_A_GOAL = (  # they pay for how well something is done, and end when it goes wrong or never
    *("PendulumEnv", "PendulumJaxEnv", "AntEnv", "HalfCheetahEnv", "HopperEnv", "HumanoidEnv", "HumanoidStandupEnv"),
    *("PusherEnv", "ReacherEnv", "SwimmerEnv", "Walker2dEnv"),
)
_KNOWN = {
    "FrozenLakeEnv": Known(
        "Walk over the frozen lake from S to G. F is ice, H is a hole that ends the walk, and [ ] is around the field "
        "where you stand. The ice may be slippery, so that you slide to a side.",
        ("left", "down", "right", "up"),
        goal="paid",
    ),
    "CliffWalkingEnv": Known(
        "Walk from the lower left corner to T. You stand on x. C is a cliff: stepping on it costs 100 and takes you "
        "back to the start; any other step costs 1.",
        ("up", "right", "down", "left"),
        goal="ends",
    ),
    "TaxiEnv": Known(
        "Drive the taxi, which is the field in [ ], to the passenger, who waits at the letter in ( ), pick the "
        "passenger up, drive to the letter in { } and drop the passenger off. You cannot drive through | and lines. "
        "With the passenger inside, the field of the taxi is [_].",
        ("south", "north", "east", "west", "pickup", "dropoff"),
        goal="paid",
    ),
    "BlackjackEnv": Known(
        "Blackjack: come nearer to 21 than the dealer, without going over it. Aces count 1 or 11, faces 10.",
        ("stick", "hit"),
        ("your sum", "the card that the dealer shows", "a usable ace (1: yes)"),
        goal="paid",
    ),
    "CartPoleEnv": Known(
        "Keep the pole upright on the cart until the time is over. You see the cart's place and speed, and the pole's "
        "angle and fall. It is over when the pole leans more than 12 degrees or the cart leaves the track.",
        ("left", "right"),
        goal="lasts",
    ),
    "MountainCarEnv": Known(
        "Drive the car up the hill on the right, to place 0.5. Its engine is too weak for that: swing. You see its "
        "place and its speed.",
        ("left", "none", "right"),
        goal="ends",
    ),
    "Continuous_MountainCarEnv": Known(
        "Drive the car up the hill on the right, to place 0.45. Its engine is too weak for that: swing. You see its "
        "place and its speed.",
        goal="ends",
    ),
    "AcrobotEnv": Known(
        "Swing the lower end of two linked rods above the line. You see cosine and sine of both angles, and how fast "
        "these change.",
        ("push back", "none", "push"),
        goal="ends",
    ),
    "LunarLander": Known(goal="paid"),
    "BipedalWalker": Known(goal="paid"),
    "CarRacing": Known(goal="paid"),
    **dict.fromkeys(("InvertedPendulumEnv", "InvertedDoublePendulumEnv", "CartPoleJaxEnv"), Known(goal="lasts")),
    **dict.fromkeys(_WITHOUT_A_GOAL, Known(goal="unknown")),
}


def known_environment(class_name: str) -> Known:
    return _KNOWN.get(class_name, Known())


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
