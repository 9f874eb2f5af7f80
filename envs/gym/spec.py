"""Provides the environments `gym:ID`: any registered gymnasium environment, played by text."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from grpo.envs.members import member_spec, named_module
from grpo.plugins.errors import OptionError, PluginNotFound
from grpo.plugins.factory_decorators import env
from grpo.plugins.specs import REQUIRED, EnvSpec

if TYPE_CHECKING:
    import gymnasium

Render = Literal["auto", "ansi", "values"]
Success = Literal["auto", "paid", "ends", "lasts", "unknown"]
Unreadable = Literal["again", "end"]
USUAL_TURNS = 100  # for an environment that sets itself no limit
_MODULES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}  # what registers ids that begin so


def make(
    member: str,
    *,
    render: Render = "auto",
    rules: str | None = None,
    actions: list[str] | None = None,
    unreadable: Unreadable = "again",
    penalty: float = 0.0,
    success: Success = "auto",
    **inner: Any,
) -> gymnasium.Env[Any, Any]:
    """Any registered gymnasium environment, played by text: `gym:FrozenLake-v1`.

    Args:
        member: the id, for example FrozenLake-v1, or module:ID or ./file.py:ID for what registers it.
        render: what an observation shows: ansi (the environment's own drawing, colours as brackets), values (the
            observation written down), or auto (ansi where there is one).
        rules: what the policy is told first; default: what is known of the environment.
        actions: a word for each discrete action, in order; default: those that are known, else numbers.
        unreadable: after a completion that names no action, the policy may try again, or the episode ends.
        penalty: added to the reward of a turn that names no action.
        success: when the goal was reached: paid (the episode terminates with a reward above 0), ends (it terminates),
            lasts (its own time limit is reached), unknown (nobody says); auto: what is known of the environment, else
            what its rewards leave no doubt about.
        inner: options of the environment itself.

    Returns:
        An environment of several turns.

    Raises:
        PluginNotFound: nobody has registered that id, or what it needs is not installed.
        OptionError: an option that the environment cannot follow.
    """
    import gymnasium

    from grpo.envs.gym.actions import can_be_written
    from grpo.envs.gym.env import TextGame
    from grpo.envs.gym.known import known_environment

    spec = _registered(member)
    modes = inspect.getattr_static(_creator(member, spec), "metadata", {}).get("render_modes", [])
    if render == "ansi" and "ansi" not in modes:
        raise OptionError(f"gym:{member} draws no text (it has: {', '.join(modes) or 'nothing'}). Use render=values.")
    draws = "ansi" in modes and render != "values"
    given: dict[str, Any] = {**inner, "render_mode": "ansi"} if draws else inner  # not every constructor takes it
    try:
        game: gymnasium.Env[Any, Any] = gymnasium.make(spec, disable_env_checker=True, **given)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise _missing(member, error) from error
    except (gymnasium.error.Error, TypeError, ValueError, LookupError, AssertionError) as error:
        raise OptionError(f"gym:{member} cannot be made with {inner or 'its defaults'}: {error}") from error
    if not can_be_written(game.action_space):
        raise OptionError(f"gym:{member}: its actions, {game.action_space}, cannot be written as text.")
    known = known_environment(type(game.unwrapped).__name__)
    known = replace(
        known,
        rules=known.rules if rules is None else rules,
        actions=_action_names(member, game, known.actions, actions),
        goal=known.goal if success == "auto" else success,
    )
    turns = spec.max_episode_steps or USUAL_TURNS
    return TextGame(game, known, draws=draws, most_turns=turns, unreadable=unreadable, penalty=penalty)


def resolve(member: str) -> EnvSpec:
    """Returns the spec of one environment. Raises PluginNotFound: an unknown id, or what it needs is not installed."""
    spec = _registered(member)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    inner = (
        (name, spec.kwargs.get(name, REQUIRED if parameter.default is parameter.empty else parameter.default))
        for name, parameter in inspect.signature(_creator(member, spec)).parameters.items()
        if parameter.kind in kinds
    )
    return member_spec(GYM, member, make, inner, ["render_mode"], max_turns=spec.max_episode_steps or USUAL_TURNS)


def _registered(member: str) -> Any:
    import gymnasium

    for start, module in _MODULES.items():
        if member.startswith(start) and member not in gymnasium.registry:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise PluginNotFound(
                    f"gym:{member} comes with {module}, which is not installed ({error}). Install it with: pip install "
                    f"{module}"
                ) from error
    place, colon, env_id = member.rpartition(":")
    known = set(gymnasium.registry)
    if colon:
        named_module(place, f"gym:{member}", f"gym:./file.py:{env_id}")
    try:
        return gymnasium.spec(env_id)
    except gymnasium.error.Error as error:
        if colon:
            registered = sorted(set(gymnasium.registry) - known)
            where = f". {place} registers: {', '.join(registered[:20])}." if registered else ""
        else:
            where = f" If a module or a file registers it, write gym:MODULE:{member} or gym:./file.py:{member}."
        raise PluginNotFound(f"gymnasium knows no environment '{env_id}': {error}{where}") from error


def _creator(member: str, spec: Any) -> Any:
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    if callable(spec.entry_point):
        return spec.entry_point
    try:
        return load_env_creator(spec.entry_point)
    except (gymnasium.error.DependencyNotInstalled, ImportError, AttributeError) as error:
        raise _missing(member, error) from error


def _missing(member: str, error: BaseException) -> PluginNotFound:
    lacks = getattr(error, "name", None)
    reason = " ".join(str(error).split()).rstrip(".")
    remedy = f". Install it with: pip install {lacks}" if isinstance(error, ModuleNotFoundError) and lacks else ""
    return PluginNotFound(f"gym:{member} cannot be made on this machine: {reason}{remedy}.")


def _action_names(
    member: str, game: gymnasium.Env[Any, Any], known: tuple[str, ...], given: list[str] | None
) -> tuple[str, ...]:
    count = getattr(game.action_space, "n", None)
    members = getattr(getattr(game.unwrapped, "actions", None), "__members__", {})
    if given is None:
        names = known or tuple(members)
        return names if len(names) == count else ()
    if len(given) != count or len({name.casefold() for name in given}) != len(given):
        raise OptionError(f"gym:{member}: actions={given} must be {count} different words, one for each action.")
    return tuple(given)


GYM = env(
    name="gym", version=1, rewards=("environment",), verifier="environment", max_turns=USUAL_TURNS, resolve=resolve
)(make)
