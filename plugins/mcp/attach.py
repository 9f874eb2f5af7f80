"""Adds the tools of MCP servers to the spec of an environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grpo.plugins.mcp.servers import McpServer
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

TURNS = 16
"""How many turns of an episode may call tools, beside those that the environment has without them."""


@dataclass(frozen=True, slots=True)
class ServedFactory:
    """Makes an environment with servers by a factory of one without."""

    make: Callable[..., Any]
    name: str
    servers: tuple[McpServer, ...]
    stepped: bool

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The factory, for records and whoever looks for the environment's code."""
        return self.make

    def __call__(self, **options: Any) -> gymnasium.Env[Any, Any]:
        from grpo.plugins.mcp.env import env_with_servers

        return env_with_servers(self.make(**options), self.name, self.servers, stepped=self.stepped)


@dataclass(frozen=True, slots=True)
class _Settle:
    """Settles a spec as the environment does, and adds the servers again."""

    settle: Callable[..., EnvSpec]
    servers: tuple[McpServer, ...]

    def __call__(self, **options: Any) -> EnvSpec:
        return with_servers(self.settle(**options), self.servers)


def with_servers(spec: EnvSpec, servers: tuple[McpServer, ...]) -> EnvSpec:
    """Returns the spec with servers; its policy speaks in several turns."""
    return replace(
        spec,
        factory=ServedFactory(spec.factory, spec.name, servers, spec.played),
        max_turns=spec.max_turns + TURNS,
        settle=None if spec.settle is None else _Settle(spec.settle, servers),
    )
