"""Reads the key `mcp` of an environment: MCP servers, each a table, a command line, or an http(s) address."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from grpo.plugins.agents import search_path
from grpo.plugins.errors import NotInstalled, OptionError, PluginNotFound, did_you_mean

if TYPE_CHECKING:
    from grpo.plugins.session import SessionPool

EXTRA = "mcp"
FOLDER = "{folder}"
"""Stands for the working directory of the episode's server, in its arguments and variables."""
STARTING = 50.0
"""Seconds for a server to start and to list its tools."""
ALIVE = 5.0
"""Seconds for a server that did not answer a call to answer that it is there."""
_ADDRESS = ("http://", "https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One MCP server of an environment.

    Attributes:
        command: the program and its arguments, which is started for each episode; empty for a server at an address.
        url: the address of a running server, for streamable HTTP; "" for a program.
        tools: the tools to offer, by the server's names; empty for all.
        prefix: what stands before each name that the policy is shown.
        session: the SPEC of the session that the program runs in; "": a process of this machine.
        machines: makes the pool that the SPEC names.
        environment: variables of the program, beside PATH, HOME, LANG and TMPDIR, as pairs.
        variables: the variables of this process that the program gets as well.
        seconds: how long a call may take.
        shown: how many characters of a result the policy is shown: the beginning and the end.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    tools: tuple[str, ...] = ()
    prefix: str = ""
    session: str = ""
    machines: Callable[[], SessionPool] | None = field(default=None, compare=False, repr=False)
    environment: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()
    seconds: float = 30.0
    shown: int = 2000

    @property
    def longest_call(self) -> float:
        """The most seconds that a call may take: the start of the server, the call, and a last sign of life."""
        return STARTING + self.seconds + ALIVE

    def record(self) -> dict[str, Any]:
        """Returns what a run records of it, by the keys of `mcp`."""
        return {**{key: getattr(self, key) for key in KEYS}, "environment": dict(self.environment)}

    @property
    def name(self) -> str:
        """Its name in messages: its address or its command line."""
        return self.url or shlex.join(self.command)


KEYS = tuple(each.name for each in fields(McpServer) if each.name != "machines")
_MOST_SECONDS, _MOST_SHOWN = 600.0, 20000


def read_servers(
    value: Any, written: str, session: Callable[[str], Callable[[], SessionPool]] | None = None
) -> tuple[McpServer, ...]:
    """Returns the servers that the key `mcp` names, at least one; `written` is the SPEC, for errors.

    `session`: finds what makes the pool of a session by its SPEC. Raises OptionError for no or an impossible server,
    UsageError for an invalid session, NotInstalled for a program not on the PATH, PluginNotFound without the package
    mcp.
    """
    listed = value if isinstance(value, list | tuple) else [value]
    if not listed:
        raise OptionError(f"'{written}': mcp is an empty list. Name a server, or leave it out.")
    servers = tuple(_read(each, written, session) for each in listed)
    for number, server in enumerate(servers):
        if (server.command, server.url, server.prefix) in [(s.command, s.url, s.prefix) for s in servers[:number]]:
            raise OptionError(f"'{written}': mcp names '{server.name}' twice. Keep one, or give it a prefix.")
    refuse_missing_package(written)
    return servers


def refuse_missing_package(written: str) -> None:
    """Raises PluginNotFound if the package mcp is not installed; `written` is what needs it."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise PluginNotFound(
            f"'{written}' needs the package mcp, which is not installed. Install it with: "
            f"pip install 'grpo-kit[{EXTRA}]'"
        )


def _read(value: Any, written: str, session: Callable[[str], Callable[[], SessionPool]] | None) -> McpServer:
    where = f"'{written}': mcp"
    if isinstance(value, str):
        value = {"url" if value.startswith(_ADDRESS) else "command": value}
    if not isinstance(value, Mapping):
        raise OptionError(
            f"{where} names {value!r}, which is no server. Write a command line, an address, or a table such as "
            '{"command": "mcp-server-time", "tools": ["convert_time"]}.'
        )
    for key in value:
        if key not in KEYS:
            raise OptionError(f"{where}: unknown key '{key}'.{did_you_mean(str(key), KEYS)} Keys: {', '.join(KEYS)}.")
    if ("command" in value) == ("url" in value):
        given = "both command and url" if "url" in value else "neither command nor url"
        raise OptionError(f"{where}: a server has {given}. Give it one of them.")
    idle = [key for key in ("environment", "variables", "session") if key in value and "url" in value]
    if idle:
        raise OptionError(f"{where}: '{idle[0]}' is for a program that is started, and {value['url']} runs already.")
    spec = _text(value.get("session", ""), "session", where)
    return McpServer(
        command=_command(value["command"], where) if "command" in value else (),
        url=_url(value["url"], where) if "url" in value else "",
        tools=_texts(value.get("tools", ()), "tools", where),
        prefix=_text(value.get("prefix", ""), "prefix", where),
        session=spec,
        machines=session(spec) if session and spec else None,
        environment=_pairs(value.get("environment", {}), where),
        variables=_texts(value.get("variables", ()), "variables", where),
        seconds=_number(value.get("seconds", 30.0), "seconds", _MOST_SECONDS, where),
        shown=int(_number(value.get("shown", 2000), "shown", _MOST_SHOWN, where)),
    )


def _command(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise OptionError(f"{where}: the command '{value}' cannot be split into arguments: {error}.") from error
    parts = _texts(value, "command", where)
    if not parts or not parts[0]:
        raise OptionError(f"{where}: the command is empty. Write a program and its arguments.")
    program = os.path.abspath(parts[0]) if "/" in parts[0] else parts[0]  # noqa: PTH100
    if shutil.which(program, path=search_path()) is None:
        raise NotInstalled(
            f"{where}: the program '{parts[0]}' is not on the PATH, or cannot be run. Install it, or name its path."
        )
    return (program, *(os.path.abspath(part) if os.path.isfile(part) else part for part in parts[1:]))  # noqa: PTH100, PTH113


def _url(value: Any, where: str) -> str:
    from urllib.parse import urlsplit

    url = _text(value, "url", where)
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        raise OptionError(f"{where}: '{url}' is not an address of a server. Write http://HOST:PORT/mcp.")
    return url


def _pairs(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise OptionError(f"{where}: environment must map names of variables to texts.")
    if bad := [name for name in value if not name or "=" in name or "\0" in name + value[name]]:
        raise OptionError(f"{where}: environment has {bad[0]!r}, which is no name of a variable with a text.")
    return tuple(value.items())


def _texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise OptionError(f"{where}: {key} must be a list of texts, not {value!r}.")
    return tuple(_text(each, key, where) for each in value)


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise OptionError(f"{where}: {key} has {value!r}, which is no text.")
    return value


def _number(value: Any, key: str, most: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= most:
        raise OptionError(f"{where}: {key}={value} must be a number from 1 to {most:g}.")
    return value
