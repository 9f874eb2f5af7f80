"""Provides the environment `mcp`: rows of your own, which the policy answers with the tools of an MCP server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.rows.spec import Rows
from grpo.plugins.factory_decorators import env
from grpo.plugins.mcp.attach import TURNS, ServedFactory
from grpo.plugins.mcp.servers import read_servers

if TYPE_CHECKING:
    import gymnasium

    from grpo.plugins.specs import EnvSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRows(Rows):
    """Rows of your own, answered with the tools of an MCP server: `mcp:server=mcp-server-time,dataset=my.jsonl`.

    Args:
        server: the command line that starts the server, or the address of one that runs.
        tools: the tools to offer, by the server's names; default: all.
        dataset: where the rows come from; this and what follows are the options of `rows`.
        subset: the configuration of a hub dataset or a clone of one; default: its only one.
        prompt: the column with the prompt, text or a list of messages; default: a known name.
        answer: the column with the right answer, or a list of right answers; default: a known name; "" for none.
        context: the column with a text that the prompt is about; default: a known name; "" for none.
        choices: the column with what there is to choose from; default: a known name; "" for none.
        system: a system message in the place of the rows' own; "" sends none.
        verifier: what judges the answers; default: math; none where there are no answers; "none" for none.
        demonstration: the column with a worked completion, for the warm-up.
    """

    server: str
    tools: tuple[str, ...] = ()

    def env(self) -> gymnasium.Env[Any, Any]:
        """Returns an environment of several turns with the server's tools.

        Raises OptionError: the options name no server; NotInstalled: its program is not on the PATH; PluginNotFound: no
        mcp.
        """
        return self.served(partial(Rows.env, self))()

    def served(self, make: Callable[..., Any]) -> ServedFactory:
        """Returns what gives the server to the environment that `make` makes."""
        [server] = read_servers(self.server, f"mcp:server={self.server}")
        return ServedFactory(make, MCP.name, (replace(server, tools=self.tools),), stepped=False)


def settle(**options: Any) -> EnvSpec:
    """Returns the spec for these options; see `Rows.settled`."""
    rows = McpRows(**options)
    return replace(rows.settled(MCP), factory=rows.served(_without_server))


def _without_server(**options: Any) -> gymnasium.Env[Any, Any]:
    return Rows.env(McpRows(**options))


MCP = env(name="mcp", version=1, settle=settle, max_turns=1 + TURNS)(McpRows)
