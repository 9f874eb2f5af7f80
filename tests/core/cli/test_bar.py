"""Progress on standard error: shown on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io
import os
import sys

import pytest

from grpo.core.cli.bar import StatusLine


def test_a_terminal_shows_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with StatusLine("loading libraries") as line:
            line.begins("loading the model")
        terminal.flush()
        shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "loading the model" in shown
    assert shown.endswith("\x1b[2K")  # the line is gone afterwards


def test_elsewhere_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with StatusLine("loading libraries") as line:
        line.begins("loading the model")
    assert written.getvalue() == ""
