"""Plays the game of `guess`: the last whole number of a text is the guess; one outside the range is a lost turn."""

from __future__ import annotations

import random
import re
from typing import Any

from grpo.envs.text.text_env import TextEnv

_NUMBER = re.compile(r"(?<![\d.,-])[0-9]{1,9}(?!\d|[.,]\d)")
_READ = 100_000  # characters of an action, from its end
_TRIES = 100


class NumberGame(TextEnv):
    """One number to find. `turns`: how many guesses there are."""

    def __init__(self, lowest: int, highest: int, turns: int, *, reminds: bool) -> None:
        super().__init__()
        self._range = (lowest, highest)
        self._turns = turns
        self._reminds = reminds
        self._fitting = (lowest, highest)
        self._number = self._left = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Thinks of a number, by `seed` or the one in `options["row"]`; ValueError where that is outside the range."""
        super().reset(seed=seed)
        low, high = self._range
        drawn = int(self.np_random.integers(low, high + 1))
        luck = int(self.np_random.integers(2**31))
        number = ((options or {}).get("row") or {}).get("number", drawn)
        if type(number) is not int or not low <= number <= high:
            raise ValueError(f"the number {number!r} is not a whole number from {low} to {high}.")
        self._number, self._left, self._fitting, self._open = number, self._turns, (low, high), True
        plays = "1 guess" if self._turns == 1 else f"{self._turns} guesses"
        question = f"Guess a number from {low} to {high}. You have {plays}."
        return question, {"row": {"number": number}, "demonstration": self._lucky(number, random.Random(luck))}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes a guess. Raises ResetNeeded if no game is open; TypeError if the action is not text."""
        matches = _NUMBER.findall(self._checked(action)[-_READ:])
        self._left -= 1
        low, high = self._range
        guess = int(matches[-1]) if matches else None
        readable = guess is not None and low <= guess <= high
        won = guess == self._number
        ended = won or self._left == 0
        if won:
            answer = "Right."
        elif ended:
            answer = f"The number was {self._number}."
        elif not readable:
            answer = f"Write a number from {low} to {high}."
        else:
            assert guess is not None
            answer = self._hint(guess, self._number)
        self._open = not ended
        return answer, float(won), ended, False, {"readable": readable, "success": won}

    def _hint(self, guess: int, number: int) -> str:
        low, high = self._fitting
        self._fitting = (max(low, guess + 1), high) if guess < number else (low, min(high, guess - 1))
        hint = f"It is {'higher' if guess < number else 'lower'} than {guess}."
        return f"{hint} So it is from {self._fitting[0]} to {self._fitting[1]}." if self._reminds else hint

    def _lucky(self, number: int, luck: random.Random) -> list[str]:
        """Guesses that keep to the hints, are otherwise random, and win in time."""
        for _ in range(_TRIES):
            low, high = self._range
            guesses: list[int] = []
            while len(guesses) < self._turns:
                guess = low + int(luck.random() * (high - low + 1))
                guesses.append(guess)
                if guess == number:
                    return [str(guess) for guess in guesses]
                low, high = (guess + 1, high) if guess < number else (low, guess - 1)
        return [str(number)]
