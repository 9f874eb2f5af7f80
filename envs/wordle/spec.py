"""Provides the environment `wordle`: find a word of five letters by marks for each letter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import OptionError
from grpo.plugins.factory_decorators import env

if TYPE_CHECKING:
    import gymnasium

MOST_TURNS = 12
WORDS = tuple(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())  # common ones of five letters


@env(version=1, rewards=("environment",), verifier="environment", max_turns=MOST_TURNS)
def wordle(*, turns: int = 6, words: int = len(WORDS), known: bool = False) -> gymnasium.Env[Any, Any]:
    """Find a word of five letters, as in Wordle; the reward is 1 for finding it in time.

    Args:
        turns: how many guesses there are, at most 12.
        words: pick from so many words, spread over the list; fewer are easier.
        known: a guess that is not one of these words is a lost turn.

    Raises:
        OptionError: an option has a value that cannot be used.
    """
    if not 1 <= turns <= MOST_TURNS:
        raise OptionError(f"turns={turns} must be from 1 to {MOST_TURNS}.")
    if not 2 <= words <= len(WORDS):
        raise OptionError(f"words={words} must be from 2 to {len(WORDS)}.")
    from grpo.envs.wordle.game import WordGame

    chosen = tuple(WORDS[number * len(WORDS) // words] for number in range(words))
    return WordGame(chosen, turns, known=known)
