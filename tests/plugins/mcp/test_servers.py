"""The key `mcp` of a SPEC: what names a server, and what is refused before anything is started."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from grpo.plugins.errors import PluginNotFound, UsageError
from grpo.plugins.host import Host
from grpo.plugins.mcp import servers
from grpo.plugins.mcp.servers import read_servers


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "refuse_missing_package", lambda written: None)


@pytest.mark.usefixtures("_installed")
def test_a_server_is_a_command_line_an_address_or_a_table() -> None:
    line, address, table = read_servers(
        [
            "sh -c 'a b'",
            "https://example.org/mcp",
            {"command": ["sh"], "tools": ["a"], "prefix": "p_", "seconds": 5, "environment": {"A": "{folder}"}},
        ],
        "test",
    )
    assert line.command == ("sh", "-c", "a b")
    assert (address.url, address.command) == ("https://example.org/mcp", ())
    assert (table.tools, table.prefix, table.seconds, table.environment) == (("a",), "p_", 5, (("A", "{folder}"),))
    assert read_servers("sh", "test")[0].command == ("sh",)


@pytest.mark.usefixtures("_installed")
def test_files_of_a_command_are_made_absolute(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").touch()
    assert read_servers("sh server.py other.py {folder}", "test")[0].command == (
        "sh",
        str(tmp_path / "server.py"),
        "other.py",
        "{folder}",
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "mcp is an empty list"),
        (3, "names 3, which is no server"),
        ("", "the command is empty"),
        ("'a", "cannot be split into arguments"),
        ("no-such-program --x", "the program 'no-such-program' is not on the PATH"),
        ({}, "neither command nor url"),
        ({"command": "sh", "url": "http://a"}, "both command and url"),
        ({"comand": "sh"}, "unknown key 'comand'. Did you mean 'command'"),
        ({"command": "sh", "tools": "echo"}, "tools must be a list of texts"),
        ({"command": "sh", "tools": [1]}, "tools has 1, which is no text"),
        ({"command": "sh", "prefix": None}, "prefix has None"),
        ({"command": "sh", "seconds": 0}, "seconds=0 must be a number from 1 to 600"),
        ({"command": "sh", "shown": True}, "shown=True must be a number"),
        ({"command": "sh", "environment": {"A": 1}}, "environment must map names of variables to texts"),
        ({"command": "sh", "environment": {"A=B": "1"}}, "which is no name of a variable"),
        ({"url": "http://"}, "'http://' is not an address of a server"),
        ({"url": "ftp://a/b"}, "is not an address"),
        ({"url": "http://a", "variables": ["A"]}, "'variables' is for a program that is started"),
        (["sh", "sh"], "names 'sh' twice"),
        ([{"command": "sh"}, {"command": "sh", "tools": ["a"]}], "names 'sh' twice"),
    ],
)
def test_what_names_no_server_is_refused(value: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_servers(value, "gsm8k:mcp=...")


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(PluginNotFound, match=r"pip install 'grpo-kit\[mcp\]'"):
        Host.discover().env("gsm8k:mcp=sh")


@pytest.mark.parametrize("kind", ["reward", "verifier", "sampler"])
def test_only_environments_take_servers(kind: str) -> None:
    name = {"reward": "proximity", "verifier": "gsm8k", "sampler": "curriculum"}[kind]
    with pytest.raises(UsageError, match=f"{kind}s take no 'mcp'"):
        getattr(Host.discover(), kind)(f"{name}:mcp=sh")
