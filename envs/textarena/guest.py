"""Plays the moves of a TextArena game inside a sandbox, replaying the game from its pickled start for each move.

It imports TextArena, numpy and the standard library only.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import random
from collections.abc import Sequence
from typing import Any

import numpy


def handle(request: tuple[bytes, Any, Sequence[str]]) -> dict[str, Any]:
    """Plays moves and returns what the last led to: `told`, `ended`, `reward`, `reason` and `invalid`.

    `request`: the pickled game, the states of Python's and NumPy's random numbers, and the moves so far; without any,
    the reply is the game as it is.
    """
    begun, numbers, moves = request
    game = pickle.loads(begun)
    random.setstate(numbers[0])
    numpy.random.set_state(numbers[1])
    ended, observation = False, ""
    for move in moves:
        with contextlib.redirect_stdout(io.StringIO()):
            ended, _ = game.step(action=move)
        observation = output_of(game)
    return outcome_of(game, bool(ended), observation)


def outcome_of(game: Any, ended: bool, observation: str) -> dict[str, Any]:
    """Returns what the last move led to.

    Some games swap the two arguments of a lost move, so that the reward is a sentence: it is the reason.
    """
    about = game.state.game_info.get(0, {})
    paid = (game.state.rewards or {}).get(0, 0.0) if ended else 0.0
    mistaken = isinstance(paid, str)
    return {
        "told": observation,
        "ended": ended,
        "reward": 0.0 if mistaken else float(paid),
        "reason": f"Invalid Move: {paid}" if mistaken else str(about.get("reason") or ""),
        "invalid": mistaken or bool(about.get("invalid_move", False)),
    }


def output_of(game: Any) -> str:
    """Returns what a game said to the player since it was asked last."""
    import textarena

    _, observations = game.get_observation()
    own = textarena.ObservationType.PLAYER_ACTION
    return "\n".join(str(text) for _, text, kind in observations if kind is not own).strip()
