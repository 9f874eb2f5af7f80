"""What a policy has to be told about well-known environments: the name of a class in, its rules and words out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """Words for an environment.

    Attributes:
        rules: what is to be done; "" when nobody has written it down.
        actions: a word for each discrete action, in order.
        fields: a word for each part of an observation that is a tuple.
        ends_at_goal: an episode that terminates has reached its goal, whatever its last reward.
    """

    rules: str = ""
    actions: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    ends_at_goal: bool = False


_KNOWN = {
    "FrozenLakeEnv": Known(
        "Walk over the frozen lake from S to G. F is ice, H is a hole that ends the walk, and [ ] is around the field "
        "where you stand. The ice may be slippery, so that you slide to a side.",
        ("left", "down", "right", "up"),
    ),
    "CliffWalkingEnv": Known(
        "Walk from the lower left corner to T. You stand on x. C is a cliff: stepping on it costs 100 and takes you "
        "back to the start; any other step costs 1.",
        ("up", "right", "down", "left"),
        ends_at_goal=True,
    ),
    "TaxiEnv": Known(
        "Drive the taxi, which is the field in [ ], to the passenger, who waits at the letter in ( ), pick the "
        "passenger up, drive to the letter in { } and drop the passenger off. You cannot drive through | and lines. "
        "With the passenger inside, the field of the taxi is [_].",
        ("south", "north", "east", "west", "pickup", "dropoff"),
    ),
    "BlackjackEnv": Known(
        "Blackjack: come nearer to 21 than the dealer, without going over it. Aces count 1 or 11, faces 10.",
        ("stick", "hit"),
        ("your sum", "the card that the dealer shows", "a usable ace (1: yes)"),
    ),
}


def known_environment(class_name: str) -> Known:
    """Returns the words for an environment's class, or none."""
    return _KNOWN.get(class_name, Known())
