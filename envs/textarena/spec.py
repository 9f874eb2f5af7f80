"""Provides the environments `textarena:NAME`: the games for one player of TextArena."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from grpo.envs.members import imported, member_spec
from grpo.plugins.errors import PluginNotFound, did_you_mean
from grpo.plugins.factory_decorators import env
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

EXTRA = "textarena"
USUAL_TURNS = 50  # of a game that sets itself no limit


def make(
    member: str, *, turns: int | None = None, sandbox: str = "", seconds: float = 5.0, **inner: Any
) -> gymnasium.Env[str, str]:
    """A game for one player of TextArena: `textarena:GuessTheNumber-v0`.

    Args:
        member: the game's name.
        turns: after so many turns the episode is truncated; default: the game's own limit, else 50.
        sandbox: the SPEC of the sandbox that reads moves, or "process" for a process with limits that is none;
            default: local, or else that process.
        seconds: of processor time for one move, with those before it; a slower move has lost the game.
        inner: options of the game itself.

    Returns:
        An environment of several turns.

    Raises:
        PluginNotFound: there is no such game, or textarena is not installed.
        OptionError: a game that cannot be played alone, that lacks data or that refuses its options.
        UsageError: no sandbox has that SPEC.
        SandboxUnavailable: this machine cannot run it.
    """
    from grpo.envs.textarena.env import ArenaGame, plain_game

    kwargs = _registered(member).kwargs
    given = {name: value for name, value in inner.items() if name not in kwargs or kwargs[name] != value}
    game, brackets = plain_game(member, given)
    most = turns or USUAL_TURNS
    return ArenaGame(member, game, brackets=brackets, most_turns=most, sandbox=sandbox, seconds=seconds)


def resolve(member: str) -> EnvSpec:
    """Returns the spec of one game. Raises PluginNotFound; OptionError: not for one player, or it lacks data."""
    spec = _registered(member)
    from grpo.envs.textarena.env import turns_of

    turns = turns_of(member)
    creator = spec.entry_point
    if isinstance(creator, str):
        module, _, name = creator.partition(":")
        creator = getattr(importlib.import_module(module), name)
    inner = (
        (name, spec.kwargs.get(name, None if parameter.default is parameter.empty else parameter.default))
        for name, parameter in inspect.signature(creator).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    )
    taken = ["max_turns"]  # the rollout's, see turns
    return member_spec(TEXTARENA, member, make, inner, taken, max_turns=turns or USUAL_TURNS)


def _registered(member: str) -> Any:
    registry = imported("textarena.envs.registration", EXTRA, f"textarena:{member}").ENV_REGISTRY
    if member not in registry:
        raise PluginNotFound(f"textarena has no game '{member}'.{did_you_mean(member, registry)}")
    return registry[member]


TEXTARENA = env(
    name="textarena",
    version=1,
    rewards=("environment",),
    verifier="environment",
    max_turns=USUAL_TURNS,
    resolve=resolve,
)(make)
