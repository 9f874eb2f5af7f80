"""Plays a game of TextArena for one player as an environment of texts.

Games draw from global random numbers, so each gets its own. A game reads the policy's moves in a sandbox (`guest`); a
move that crashes it there loses.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from grpo.envs.graders.remote import PROCESS, Graders, runner
from grpo.envs.own_numbers import SEEDS, OwnNumbers
from grpo.envs.text.text_env import TextEnv, stated_action
from grpo.envs.textarena import guest
from grpo.envs.textarena.guest import output_of
from grpo.plugins.errors import OptionError, TransientError

_MEMORY = 2**30  # of a process with the library
_READ = 4_000  # characters; games read numbers, and Python refuses those of more than 4,300 digits
_elsewhere: dict[str, str] = {}  # where the moves of a game are read that the user left to us


def plain_game(member: str, options: Mapping[str, Any]) -> tuple[Any, bool]:
    """Makes a game without the wrappers that repeat the conversation; returns it, and whether actions need brackets.

    Raises OptionError: the game refuses its options, lacks data or asks another model.
    """
    import textarena
    from textarena.wrappers import ActionFormattingWrapper

    try:
        with OwnNumbers().used(0):
            game: Any = textarena.make(member, **options)
    except Exception as error:
        if _was_asking_for_a_model(error):
            raise _refused(member) from error
        raise OptionError(
            f"textarena:{member} cannot be made with {dict(options) or 'its defaults'}: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}"
        ) from error
    brackets = False
    while isinstance(game, textarena.Wrapper):
        brackets = brackets or isinstance(game, ActionFormattingWrapper)
        game = game.env
    if asks_a_model(game):
        raise _refused(member)
    return game, brackets


def turns_of(member: str) -> int | None:
    """Returns how many turns a game allows, or None where it sets no limit. Raises OptionError."""
    game, _ = plain_game(member, {})
    try:
        with OwnNumbers().used(0):
            game.reset(num_players=1, seed=0)
    except Exception as error:
        raise OptionError(
            f"textarena:{member} cannot be played alone, or lacks something: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}. Name a game for one player."
        ) from error
    if type(game.state).__name__ != "SinglePlayerState":
        raise OptionError(
            f"textarena:{member} is a game for several players ({type(game.state).__name__}), though it starts with "
            "one. Name a game for one player."
        )
    limit = game.state.max_turns
    return int(limit) if limit else None


def asks_a_model(game: Any) -> bool:
    """Returns whether a game has another model answer, which no sandbox lets it reach."""
    import textarena

    return any(isinstance(value, textarena.Agent) for value in vars(game).values())


def _was_asking_for_a_model(error: Exception) -> bool:
    """Whether the error comes from another model that a game wanted: no key, no package, no network."""
    import textarena

    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(isinstance(frame.f_locals.get("self"), textarena.Agent) for frame in frames)


def _refused(member: str) -> OptionError:
    return OptionError(
        f"textarena:{member} asks another model over the network for its answers, which the sandbox that reads "
        "moves cannot reach. Name a game that answers by itself."
    )


@lru_cache(maxsize=8)
def players(sandbox: str, seconds: float) -> Graders:
    return Graders("textarena", guest, runner("textarena", sandbox), seconds=seconds, memory=_MEMORY)


class ArenaGame(TextEnv):
    """Plays a game for one player.

    `brackets`: an action without square brackets is put into some. `sandbox`: the SPEC of the sandbox that reads moves;
    see `runner`. `seconds`: of processor time for one move, with those before it. Raises UsageError,
    SandboxUnavailable.
    """

    def __init__(
        self, member: str, game: Any, *, brackets: bool, most_turns: int, sandbox: str, seconds: float
    ) -> None:
        super().__init__()
        self._member = member
        self._game = game
        self._brackets = brackets
        self._most_turns = most_turns
        self._how = sandbox, seconds
        players(*self._how)
        self._numbers = OwnNumbers()
        self._begun = b""
        self._moves: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        start = seed if seed is not None else int(self.np_random.integers(SEEDS))
        with self._numbers.used(start):
            self._game.reset(num_players=1, seed=start)
            observation = output_of(self._game)
        self._begun = pickle.dumps(self._game, protocol=5)
        self._how = self._held()
        self._moves = []
        self._open = True
        return observation, {"row": {"game": self._member}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays the action: what stands in the last `<action>` or `<answer>`, or else the whole completion."""
        self._moves.append(self._move(self._checked(action)))
        came = self._played()
        ended, reward = came["ended"], came["reward"]
        cut = not ended and len(self._moves) >= self._most_turns
        self._open = not (ended or cut)
        info: dict[str, Any] = {"scores": {"return": reward}, "success": ended and reward >= 1.0}
        if not self._open:
            info["reason"] = came["reason"]
            info["invalid_move"] = came["invalid"]
        return came["told"], reward, ended, cut, info

    def _played(self) -> dict[str, Any]:
        """What the last move led to; a move that crashes the game has lost it."""
        numbers = self._numbers.state
        before = (self._begun, numbers, self._moves[:-1])
        reply = players(*self._how).ask((self._begun, numbers, self._moves), [before])
        if reply.value is not None:
            came: dict[str, Any] = reply.value
            return came
        return {"told": "", "ended": True, "reward": 0.0, "reason": f"Invalid Move: {reply.reason}", "invalid": True}

    def _held(self) -> tuple[str, float]:
        """Where moves are read: by default, in a process with limits if the sandbox lacks the game's data."""
        sandbox, seconds = self._how
        if not sandbox and self._member not in _elsewhere:
            request: Any = (self._begun, self._numbers.state, [])
            try:
                players(sandbox, seconds).ask(request, [request])
            except TransientError:
                players(PROCESS, seconds).ask(request, [request])
                _elsewhere[self._member] = PROCESS
            else:
                _elsewhere[self._member] = ""
        return sandbox or _elsewhere[self._member], seconds

    def _move(self, completion: str) -> str:
        move = stated_action(completion)[-_READ:]
        return f"[{move}]" if self._brackets and "[" not in move and "]" not in move else move
