"""A table on a terminal: columns where they fit, else lines that keep every cell whole."""

from __future__ import annotations

import re
import sys

import pytest

from grpo.core.cli.table import print_table

HEADINGS = ("run", "env", "status")
ROWS = [
    ("runs/a", "gsm8k:dataset=./a/folder/with/rows.jsonl,question=Task", "done"),
    ("runs/b", "[b]code", "failed"),
]


def shown(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, terminal: bool) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_table(HEADINGS, ROWS, long=(1,), state=2, style=lambda state: "green" if state == "done" else "red")
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)


def test_a_wide_terminal_and_a_pipe_have_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, terminal in ((100, True), (40, False)):
        lines = shown(columns, monkeypatch, capsys, terminal=terminal).splitlines()
        assert [line.split() for line in lines] == [list(row) for row in (HEADINGS, *ROWS)]


def test_a_narrow_terminal_has_a_line_of_short_cells_and_the_long_one_under_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line.rstrip() for line in shown(60, monkeypatch, capsys, terminal=True).splitlines()]
    assert lines[0] == "runs/a  done"
    assert "".join(line.strip() for line in lines[1:-2]) == ROWS[0][1]
    assert lines[-2:] == ["runs/b  failed", "    [b]code"]
