"""Gives any environment the tools of MCP servers, beside its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import DatasetError
from grpo.plugins.mcp.process import refuse_bad_files
from grpo.plugins.mcp.servers import McpServer
from grpo.plugins.mcp.tools import Seat, tools_of

if TYPE_CHECKING:
    import gymnasium


def env_with_servers(
    env: gymnasium.Env[Any, Any], name: str, servers: Sequence[McpServer], *, stepped: bool
) -> gymnasium.Env[str, str]:
    """Returns an environment with servers; the arguments are those of `EnvWithServers`."""
    made: gymnasium.Env[str, str] = _class()(env, name, servers, stepped=stepped)
    return made


@cache
def _class() -> Any:
    """Returns a subclass of gymnasium's, which is imported only when an environment is made."""
    import gymnasium

    return type(EnvWithServers.__name__, (EnvWithServers, gymnasium.Env), {"__doc__": EnvWithServers.__doc__})


class EnvWithServers:
    """An environment and the servers of its episode; other attributes are the environment's own.

    An episode begins with `reset`; its servers are those of its first calls and end with it. `name`: in messages.
    `stepped`: the environment is stepped; otherwise the policy's answer ends the episode.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, servers: Sequence[McpServer], *, stepped: bool) -> None:
        self.inner = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self._name = name
        self._servers = tuple(servers)
        self._stepped = stepped
        self._seats: list[tuple[McpServer, Seat]] = []
        self._files: Mapping[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not made yet
            raise AttributeError(name)
        return getattr(self.inner.unwrapped, name)

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """The functions that the policy may call; starts the servers. OptionError: no start, or equal names."""
        own = tuple(getattr(self.inner.unwrapped, "tools", None) or ())
        if not self._seats:
            self._seats = [(server, Seat(server, self._files)) for server in self._servers]
        return tools_of(own, self._seats, self._name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; its row's `files` (path to text) go to its servers. Raises DatasetError if invalid."""
        super().reset(seed=seed)  # type: ignore[misc]
        self._release()
        observation, info = self.inner.reset(seed=seed, options=options)
        row = info.get("row", (options or {}).get("row")) or {}
        self._files = row.get("files") or {}
        try:
            refuse_bad_files(self._files)
        except ValueError as error:
            raise DatasetError(f"the column 'files': {error}. It maps paths to texts.") from error
        return observation, info

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._stepped:
            return "", 0.0, True, False, {}
        observation, reward, terminated, truncated, info = self.inner.step(action)
        return observation, float(reward), terminated, truncated, info

    def close(self) -> None:
        self._release()
        self.inner.close()

    def __del__(self) -> None:
        if "_seats" in vars(self):
            self._release()

    def _release(self) -> None:
        for _, seat in self._seats:
            seat.close()
        self._seats = []
