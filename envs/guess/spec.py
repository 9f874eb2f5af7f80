"""Provides the environment `guess`: find a number by the hints "higher" and "lower"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import OptionError
from grpo.plugins.factory_decorators import env

if TYPE_CHECKING:
    import gymnasium

MOST_TURNS = 20
HIGHEST = 10**6


@env(version=1, rewards=("environment",), verifier="environment", max_turns=MOST_TURNS)
def guess(
    *, lowest: int = 1, highest: int = 15, turns: int | None = None, reminds: bool = True
) -> gymnasium.Env[Any, Any]:
    """Find a number by the hints "higher" and "lower"; the reward is 1 for finding it in time.

    Args:
        lowest: the least number it can be.
        highest: the greatest number it can be, at most 1000000.
        turns: how many guesses there are, at most 20; default: as many as halving the range needs.
        reminds: a hint ends with the range that is left; without it the policy has to remember.

    Raises:
        OptionError: an option has a value that cannot be used.
    """
    if not 0 <= lowest < highest <= HIGHEST:
        raise OptionError(f"lowest={lowest}, highest={highest}: use 0 <= lowest < highest <= {HIGHEST}.")
    chosen = (highest - lowest + 1).bit_length() if turns is None else turns
    if not 1 <= chosen <= MOST_TURNS:
        raise OptionError(f"turns={chosen} must be from 1 to {MOST_TURNS}.")
    from grpo.envs.guess.game import NumberGame

    return NumberGame(lowest, highest, chosen, reminds=reminds)
