"""Runs that are watched: which state a reader sees, and what a reader's hand may change."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from made_run import grow, made_run

from grpo.core.record.labels import Labels, read_labels
from grpo.core.record.list import list_runs
from grpo.core.record.run_dir import append_metrics, exclusive
from grpo.core.watch.folder import WatchedFolder
from grpo.core.watch.server import WatchServer
from grpo.plugins.errors import UsageError


def test_a_state_is_kept_until_a_run_goes_on(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens")
    watched = WatchedFolder(tmp_path).watched(["pens"])
    first = watched.state()
    assert watched.state() is first
    grow(run, 4)
    assert watched.state().version != first.version


def test_a_run_by_itself_goes_by_its_name(tmp_path: Path) -> None:
    made_run(tmp_path / "pens")
    watched = WatchedFolder(tmp_path / "pens")
    assert watched.alone == "pens"
    assert [line["name"] for line in watched.lines()] == ["pens"]
    assert watched.watched(["pens"]).state().summary
    assert WatchedFolder(tmp_path).alone is None


@pytest.mark.parametrize(
    "name",
    ["..", ".", "", "../outside", "inside/../../outside", "{above}/outside", "/etc", ".hidden", "none", "a\0b"],
)
def test_a_name_reaches_nothing_but_the_runs_of_the_folder(tmp_path: Path, name: str) -> None:
    name = name.format(above=tmp_path)
    for place in ("outside", "runs/inside", "runs/.hidden"):
        made_run(tmp_path / place, steps=1)
    watched = WatchedFolder(tmp_path / "runs")
    for act in (
        lambda: watched.watched([name]),
        lambda: watched.label(name, {"note": "x"}),
        lambda: watched.delete(name, name),
    ):
        with pytest.raises(UsageError, match="no run"):
            act()
    assert (tmp_path / "outside" / "config.json").is_file()


def test_labels_are_kept_with_the_run_and_change_nothing_else(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens")
    watched = WatchedFolder(tmp_path)
    version, before = watched.watched(["pens"]).state().version, list_runs(tmp_path)
    watched.label("pens", {"tags": [" best ", "best", "two  words", " "], "note": "a\nb", "hidden": True})
    assert read_labels(run) == Labels(("best", "two words"), "a\nb", True)
    assert watched.lines()[0]["tags"] == ("best", "two words")
    assert watched.watched(["pens"]).state().version == version
    assert list_runs(tmp_path) == before


@pytest.mark.parametrize(
    "value",
    [
        {"tags": "best"},
        {"tags": [1]},
        {"tags": ["x" * 65]},
        {"tags": [str(number) for number in range(33)]},
        {"note": None},
        {"note": "x" * 10_001},
        {"hidden": 1},
        {"else": 1},
        [],
    ],
)
def test_what_is_no_label_is_refused_and_changes_nothing(tmp_path: Path, value: object) -> None:
    run = made_run(tmp_path / "pens", steps=1)
    with pytest.raises(UsageError):
        WatchedFolder(tmp_path).label("pens", value)
    assert not run.labels.exists()


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"tags": 3}', '{"more": 1}', "[" * 200_000])
def test_labels_that_cannot_be_read_hide_no_run(tmp_path: Path, text: str) -> None:
    run = made_run(tmp_path / "pens", steps=1)
    run.labels.write_text(text)
    assert [line["name"] for line in WatchedFolder(tmp_path).lines()] == ["pens"]


def test_a_run_is_deleted_by_its_name_alone_and_never_while_it_is_in_use(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, steps=1) for name in ("one", "two")]
    watched = WatchedFolder(tmp_path)
    with pytest.raises(UsageError, match="not typed"):
        watched.delete("one", "on")
    with exclusive(runs[0]), pytest.raises(UsageError, match="in use"):
        watched.delete("one", "one")
    assert runs[0].config.is_file()
    watched.delete("one", "one")
    assert [path.name for path in tmp_path.iterdir()] == ["two"]
    with pytest.raises(UsageError, match="no run 'one'"):
        watched.watched(["one"])


def test_labels_and_deletion_follow_no_link_that_a_run_brought_along(tmp_path: Path) -> None:
    run = made_run(tmp_path / "runs" / "one", steps=1)
    precious, elsewhere = tmp_path / "precious", tmp_path / "elsewhere"
    precious.write_text("mine")
    (run.path / ".labels.json.unfinished").symlink_to(precious)
    run.lock.unlink()
    run.lock.symlink_to(elsewhere)
    watched = WatchedFolder(tmp_path / "runs")
    watched.label("one", {"note": "x"})
    assert (precious.read_text(), read_labels(run).note) == ("mine", "x")
    with pytest.raises(UsageError, match="not a file that a run makes"):
        watched.delete("one", "one")
    assert not elsewhere.exists()


def test_a_run_that_may_be_going_on_on_another_machine_is_not_deleted(tmp_path: Path) -> None:
    run = made_run(tmp_path / "one", steps=1)
    run.state.write_text(json.dumps({**json.loads(run.state.read_text()), "status": "running"}))
    watched = WatchedFolder(tmp_path)
    with pytest.raises(UsageError, match="another machine"):
        watched.delete("one", "one")
    for file in run.path.iterdir():
        os.utime(file, (1e9, 1e9))
    watched.delete("one", "one")
    assert not run.path.exists()


def test_a_link_to_a_run_elsewhere_is_not_followed_to_delete_it(tmp_path: Path) -> None:
    run = made_run(tmp_path / "elsewhere" / "run", steps=1)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(run.path)
    with pytest.raises(UsageError, match="link"):
        WatchedFolder(tmp_path / "runs").delete("linked", "linked")
    assert run.config.is_file()


def test_a_list_is_json_whatever_a_metric_was(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=1)
    append_metrics(run, {"step": 2, "reward": math.nan})
    lines = WatchedFolder(tmp_path).lines()
    assert json.loads(json.dumps(lines, allow_nan=False))[0]["reward"] is None


def test_a_link_leads_to_a_run_whatever_its_name_is(tmp_path: Path) -> None:
    made_run(tmp_path / "a&run=b #1", steps=1)
    with WatchServer(WatchedFolder(tmp_path / "a&run=b #1"), 0) as server:
        assert parse_qs(urlsplit(server.link).query) == {"run": ["a&run=b #1"]}


def test_no_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        WatchedFolder(tmp_path / "none")
