"""A game of TextArena as an environment of texts: a game for one player in, observations and a last reward out.

The games draw from Python's and NumPy's global random numbers, so each gets numbers of its own. The prompt tells the
rules; each observation is what the game said since, as the conversation holds everything before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from grpo.envs.own_numbers import SEEDS, OwnNumbers
from grpo.envs.text.spaces import AnyText
from grpo.plugins.errors import OptionError

_READ = 4_000  # characters; games read numbers, and Python refuses those of more than 4,300 digits
_TAG = re.compile(r"<(action|answer)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)


def plain_game(member: str, options: Mapping[str, Any]) -> tuple[Any, bool]:
    """Makes a game without the wrappers that repeat the conversation.

    Returns:
        The game, and whether it expects its actions in square brackets.

    Raises:
        OptionError: the game refuses its options, or lacks data.
    """
    import textarena
    from textarena.wrappers import ActionFormattingWrapper

    try:
        with OwnNumbers().used(0):
            game: Any = textarena.make(member, **options)
    except Exception as error:
        raise OptionError(
            f"textarena:{member} cannot be made with {dict(options) or 'its defaults'}: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}"
        ) from error
    brackets = False
    while isinstance(game, textarena.Wrapper):
        brackets = brackets or isinstance(game, ActionFormattingWrapper)
        game = game.env
    return game, brackets


def turns_of(member: str) -> int | None:
    """Returns how many turns a game allows, or None where it sets no limit.

    Raises:
        OptionError: it cannot be played alone, or lacks data.
    """
    game, _ = plain_game(member, {})
    try:
        with OwnNumbers().used(0):
            game.reset(num_players=1, seed=0)
    except Exception as error:
        raise OptionError(
            f"textarena:{member} cannot be played alone, or lacks something: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}. Name a game for one player."
        ) from error
    limit = game.state.max_turns
    return int(limit) if limit else None


class ArenaGame(gymnasium.Env[str, str]):
    """Plays a game for one player.

    Args:
        member: its name.
        game: the game, without wrappers.
        brackets: an action without square brackets is put into some.
        most_turns: after so many turns the episode is truncated.
    """

    def __init__(self, member: str, game: Any, *, brackets: bool, most_turns: int) -> None:
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._member = member
        self._game = game
        self._brackets = brackets
        self._most_turns = most_turns
        self._numbers = OwnNumbers()
        self._turns = 0
        self._open = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts a game; the same for the same seed."""
        super().reset(seed=seed)
        start = seed if seed is not None else int(self.np_random.integers(SEEDS))
        with self._numbers.used(start):
            self._game.reset(num_players=1, seed=start)
            told = self._said()
        self._turns = 0
        self._open = True
        return told, {"row": {"game": self._member}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays the action: what stands in the last `<action>` or `<answer>`, or else the whole completion.

        Raises:
            ResetNeeded: no game is open.
            TypeError: the action is not text.
        """
        if not self._open:
            raise ResetNeeded("no game is open: call reset() before step().")
        if not isinstance(action, str):
            raise TypeError(f"the action must be the completion's text, not {type(action).__name__}.")
        self._turns += 1
        with self._numbers.used():
            ended, _ = self._game.step(action=self._move(action))
            told = self._said()
        ended = bool(ended)
        cut = not ended and self._turns >= self._most_turns
        self._open = not (ended or cut)
        reward = float((self._game.state.rewards or {}).get(0, 0.0)) if ended else 0.0
        info: dict[str, Any] = {"scores": {"return": reward}, "success": ended and reward >= 1.0}
        if not self._open:
            about = self._game.state.game_info.get(0, {})
            info["reason"] = str(about.get("reason", ""))
            info["invalid_move"] = bool(about.get("invalid_move", False))
        return told, reward, ended, cut, info

    def _move(self, completion: str) -> str:
        tagged = _TAG.findall(completion)
        move = (tagged[-1][1] if tagged else completion).strip()[-_READ:]
        return f"[{move}]" if self._brackets and "[" not in move and "]" not in move else move

    def _said(self) -> str:
        """What the game said to the player since it was asked last."""
        import textarena

        _, observations = self._game.get_observation()
        own = textarena.ObservationType.PLAYER_ACTION
        return "\n".join(str(text) for _, text, kind in observations if kind is not own).strip()
