"""A table on a terminal: columns where they fit, else lines that keep every cell whole."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from grpo.core.cli.table import print_table

HEADINGS = ("run", "env", "status")
ROWS = [
    ("runs/a", "gsm8k:dataset=./a/folder/with/rows.jsonl,question=Task", "done"),
    ("runs/b", "[b]code", "failed"),
]


def shown(
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    terminal: bool,
    **options: Any,
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_table(
        HEADINGS,
        ROWS,
        long=(1,),
        state=2,
        style=lambda state: "green" if state == "done" else "red",
        **options,
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line.rstrip() for line in plain.splitlines()]


def test_a_wide_terminal_and_a_pipe_have_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, terminal in ((100, True), (40, False)):
        lines = shown(columns, monkeypatch, capsys, terminal=terminal)
        assert [line.split() for line in lines] == [list(row) for row in (HEADINGS, *ROWS)]


def test_a_long_column_is_wrapped_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *more = shown(60, monkeypatch, capsys, terminal=True)
    assert first.split() == list(HEADINGS)
    assert "".join(line[8:52].strip() for line in more[:2]) == ROWS[0][1]
    assert {line.index(status) for line, status in zip((more[0], more[2]), ("done", "failed"), strict=True)} == {
        first.index("status")
    }


def test_a_narrow_terminal_has_the_first_cell_and_the_others_below_it_in_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(40, monkeypatch, capsys, terminal=True)
    assert lines[:4] == ["run", "    status", "runs/a", "    done"]
    assert lines[4] == "    env"
    assert "".join(line.strip() for line in lines[5:7]) == ROWS[0][1]
    assert lines[7:] == ["runs/b", "    failed", "    env [b]code"]


def test_the_narrowest_terminal_loses_no_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(9, monkeypatch, capsys, terminal=True)
    text = "".join(line.strip() for line in lines)
    assert [text.count(word) for word in ("done", "failed", "[b]code")] == [1, 1, 1]


def test_a_column_that_says_the_same_of_all_rows_may_be_left_out_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROWS", [(run, env, "done") for run, env, _ in ROWS])
    assert shown(100, monkeypatch, capsys, terminal=True, unless_alike=(0, 2))[0].split() == ["run", "env"]
    assert shown(100, monkeypatch, capsys, terminal=False, unless_alike=(0, 2))[0].split() == list(HEADINGS)


def test_rows_stand_under_the_titles_that_a_column_gives_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROWS", [("a", "x", "done"), ("a", "y", "done"), ("b", "z", "failed")])
    lines = shown(100, monkeypatch, capsys, terminal=True, under=0)
    assert [line.split() for line in lines] == [
        ["env", "status"],
        [],
        ["a"],
        ["x", "done"],
        ["y", "done"],
        [],
        ["b"],
        ["z", "failed"],
    ]
    assert len({lines[at].index(word) for at, word in ((0, "status"), (3, "done"), (7, "failed"))}) == 1
