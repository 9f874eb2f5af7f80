"""`grpo show --live`: what it refuses, and that it takes a real terminal and gives it back."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_run import made_run

from grpo.core.cli.main import cli
from grpo.plugins.errors import UsageError


def refused(*arguments: str | Path) -> str:
    result = CliRunner().invoke(cli, ["show", *map(str, arguments)])
    assert isinstance(result.exception, UsageError)
    return str(result.exception)


def test_a_run_that_is_none_is_refused_before_the_terminal_is_looked_at(tmp_path: Path) -> None:
    assert "does not exist. List the runs with: grpo runs" in refused(tmp_path / "none", "--live")
    assert "is not a run directory" in refused(tmp_path, "--live")


@pytest.mark.parametrize("option", [("--json",), ("--limit", "3"), ("--wasted",)])
def test_what_it_cannot_heed_is_refused(tmp_path: Path, option: tuple[str, ...]) -> None:
    assert f"leave {option[0]} out" in refused(made_run(tmp_path / "pens").path, "--live", *option)


def test_without_textual_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    told = refused(made_run(tmp_path / "pens").path, "--live")
    assert told == "--live needs Textual. Install it with: pip install 'grpo-kit[live]'"


@pytest.mark.live
@pytest.mark.slow
def test_a_pipe_is_no_terminal(tmp_path: Path) -> None:
    assert "--live needs a terminal, and this is none" in refused(made_run(tmp_path / "pens").path, "--live")


def in_terminal(run: Path, keys: bytes, *, told: str, **variables: str) -> tuple[int, str]:
    """Runs the command in a terminal of its own, presses keys once something is on it; gives its status and output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "grpo", "show", str(run), "--live"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **variables}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written, pressed, end = b"", False, time.monotonic() + 120
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    read = os.read(ours, 65536)
                except OSError:  # nobody has the terminal any more
                    read = b""
                if not read:
                    break
                written += read
            if not pressed and told.encode() in written:
                os.write(ours, keys)
                pressed = True
        else:
            process.kill()
        status = process.wait()
    os.close(ours)
    return status, written.decode()


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("keys", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_it_gives_the_terminal_back(tmp_path: Path, keys: bytes) -> None:
    status, written = in_terminal(made_run(tmp_path / "pens").path, keys, told="? keys")
    assert status == 0
    assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1
    assert "\x1b[?1000h" not in written  # the mouse stays the terminal's


@pytest.mark.live
@pytest.mark.slow
def test_without_colours_there_are_none(tmp_path: Path) -> None:
    status, written = in_terminal(made_run(tmp_path / "pens").path, b"q", told="? keys", NO_COLOR="1")
    assert status == 0
    assert not any(f"\x1b[{code}m" in written or f";{code}" in written for code in ("31m", "32m", "34m", "36m"))


@pytest.mark.live
@pytest.mark.slow
def test_a_terminal_that_cannot_be_drawn_on_is_refused(tmp_path: Path) -> None:
    status, written = in_terminal(made_run(tmp_path / "pens").path, b"", told="never", TERM="dumb")
    assert status == 2
    assert "TERM says that this one cannot do that" in " ".join(written.split())
    assert "\x1b[?1049h" not in written
