"""Plays the game of `wordle`: the last word of five letters in a text is the guess; without one the turn is lost.

A mark is `+` for a letter in its place, `?` for one that is elsewhere, `-` for one that is not there (any more).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from grpo.envs.text.text_env import TextEnv

_WORD = re.compile(r"(?<![A-Za-z])[A-Za-z]{5}(?![A-Za-z])")
_READ = 100_000  # characters of an action, from its end
_LETTERS = 5
_SHOWN = 4  # guesses of a demonstration at most


def marks(guess: str, word: str) -> str:
    """Returns a mark for each letter of a guess.

    >>> marks("level", "eagle")
    '??---'
    """
    left = Counter(wanted for letter, wanted in zip(guess, word, strict=True) if letter != wanted)
    result = []
    for letter, wanted in zip(guess, word, strict=True):
        if letter == wanted:
            result.append("+")
        elif left[letter] > 0:
            left[letter] -= 1
            result.append("?")
        else:
            result.append("-")
    return "".join(result)


class WordGame(TextEnv):
    """One word to find. `turns`: how many guesses there are. `known`: only these words are guesses."""

    def __init__(self, words: Sequence[str], turns: int, *, known: bool) -> None:
        super().__init__()
        self._words = words
        self._turns = turns
        self._known = known
        self._word = ""
        self._left = self._most = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Thinks of a word, by `seed` or the one in `options["row"]`; ValueError where that has not five letters."""
        super().reset(seed=seed)
        drawn = self._words[int(self.np_random.integers(len(self._words)))]
        luck = random.Random(int(self.np_random.integers(2**31)))
        word = ((options or {}).get("row") or {}).get("word", drawn)
        if not isinstance(word, str) or not re.fullmatch("[a-z]{5}", word):
            raise ValueError(f"the word {word!r} has not five letters from a to z.")
        self._word, self._left, self._most, self._open = word, self._turns, 0, True
        plays = "1 guess" if self._turns == 1 else f"{self._turns} guesses"
        question = (
            f"Guess a word of five letters. You have {plays}. Each letter gets a mark: + in its place, ? elsewhere in "
            "the word, - not in it."
        )
        return question, {"row": {"word": word}, "demonstration": self._narrowing(word, luck)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes a guess. Raises ResetNeeded if no game is open; TypeError if the action is not text."""
        words = _WORD.findall(self._checked(action)[-_READ:])
        self._left -= 1
        guess = words[-1].lower() if words else None
        if guess is None:
            answer = "Write a word of five letters."
        elif self._known and guess not in self._words:
            answer, guess = f"{guess} is not in the list of words.", None
        else:
            shown = marks(guess, self._word)
            self._most = max(self._most, shown.count("+"))
            answer = f"{guess} {shown}"
        won = guess == self._word
        ended = won or self._left == 0
        if ended and not won:
            answer = f"{answer} The word was {self._word}."
        info = {"readable": guess is not None, "success": won, "scores": {"letters": self._most / _LETTERS}}
        self._open = not ended
        return answer, float(won), ended, False, info

    def _narrowing(self, word: str, luck: random.Random) -> list[str]:
        """A few guesses that fit all marks so far, of which the last is the word."""
        guesses: list[str] = []
        history: list[tuple[str, str]] = []
        tries = luck.sample(range(len(self._words)), len(self._words))
        for other in (self._words[number] for number in tries):
            if len(guesses) >= min(self._turns, _SHOWN) - 1 or other == word:
                break
            if all(marks(guess, other) == shown for guess, shown in history):
                guesses.append(other)
                history.append((other, marks(other, word)))
        return [*guesses, word]
