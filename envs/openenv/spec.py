"""Provides the environments `openenv:URL`: what a server offers by OpenEnv's protocol, with its tasks as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.members import imported, member_spec
from grpo.plugins.errors import PluginNotFound
from grpo.plugins.factory_decorators import env
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

EXTRA = "openenv"
MOST_TURNS = 50


def make(
    member: str,
    *,
    field: str | None = None,
    show: str | None = None,
    system: str = "",
    turns: int = MOST_TURNS,
    success: float = 1.0,
    seconds: float = 30.0,
) -> gymnasium.Env[str, str]:
    """An environment behind an OpenEnv server: `openenv:http://localhost:8000`.

    Args:
        member: the address of the server, http or https.
        field: the field of the action that the completion goes into; default: its only text field, else its only one.
        show: the field of the observation that is shown; default: all of them, a line each.
        system: a system message, for example the rules; "" sends none.
        turns: after so many turns the episode is truncated; at most 50.
        success: an episode whose last reward is at least this reached its goal.
        seconds: to wait for one answer of the server.

    Returns:
        An environment of several turns.

    Raises:
        PluginNotFound: the package websockets is not installed.
        OptionError: nobody answers there, or the action has no field to put a completion into.
    """
    from grpo.envs.openenv.env import RemoteEnv, action_field

    imported("websockets", EXTRA, f"openenv:{member}")
    chosen = action_field(member, field)
    return RemoteEnv(
        member, chosen, show=show, system=system, most_turns=min(turns, MOST_TURNS), success=success, seconds=seconds
    )


def rows(member: str, split: str, **_: Any) -> Sequence[Mapping[str, Any]]:
    """Returns the tasks of a split, of a server that has some. Raises DatasetError."""
    from grpo.envs.openenv.tasks import task_rows

    return task_rows(member.rstrip("/"), split)


def resolve(member: str) -> EnvSpec:
    """Returns the spec of the environment behind an address. Raises PluginNotFound: it is not an address."""
    from urllib.parse import urlsplit

    from grpo.envs.openenv.tasks import offers_tasks

    parts = urlsplit(member)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PluginNotFound(f"'{member}' is not an address of a server. Write openenv:http://HOST:PORT.")
    dataset = partial(rows, member) if offers_tasks(member.rstrip("/")) else None
    return member_spec(OPENENV, member, make, dataset=dataset)


OPENENV = env(
    name="openenv", version=1, rewards=("environment",), verifier="environment", max_turns=MOST_TURNS, resolve=resolve
)(make)
