"""Progress on standard error: shown on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io
import os
import select
import sys

import pytest

from grpo.core.cli.bar import status_line


def read_until(terminal: int, text: str) -> str:
    """Reads what a terminal shows until it shows the text, which comes with a redraw, several times a second."""
    shown = ""
    while text not in shown:
        assert select.select([terminal], [], [], 30)[0], f"no '{text}' in {shown!r}"
        shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


def test_a_terminal_shows_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with status_line("loading libraries") as begins:
            first = read_until(ours, "loading libraries")
            begins("loading the model")
            first += read_until(ours, "loading the model")
        terminal.flush()
        shown = first + os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert shown.endswith("\x1b[2K") or "\x1b[?25h" in shown  # the line is gone afterwards


def test_elsewhere_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with status_line("loading libraries") as begins:
        begins("loading the model")
    assert written.getvalue() == ""
