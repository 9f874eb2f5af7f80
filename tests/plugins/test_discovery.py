"""Entry points are found in real metadata, and GRPO_PLUGINS keeps some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo.plugins._host.discovery import PIN_VARIABLE, installed_entries, normalized, pinned
from grpo.plugins._host.entry_points import Entry
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host


def install(folder: Path, name: str, version: str, entry_points: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(PIN_VARIABLE, raising=False)
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_one_entry_point_name_in_two_distributions_is_found_twice(site: Path) -> None:
    install(site, "first-dist", "1.0", "[grpo]\nrewards = first_module\n")
    install(site, "Second.Dist", "2.0", "[console_scripts]\nx = y:z\n\n[grpo]\nrewards = second_module\n")
    found = {(entry.distribution, entry.distribution_version, entry.name) for entry in installed_entries()}
    assert {("first-dist", "1.0", "rewards"), ("Second.Dist", "2.0", "rewards")} <= found


def test_our_own_entries_come_first(site: Path) -> None:
    install(site, "aaa-dist", "1.0", "[grpo]\nrewards = first_module\n")
    assert installed_entries()[0].distribution == "grpo-kit"


def test_a_distribution_that_is_twice_on_the_path_counts_once(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "twice-dist", "1.0", "[grpo]\nold = old_module\n")
    shadow = tmp_path / "shadow"
    install(shadow, "twice_dist", "2.0", "[grpo]\nnew = new_module\n")
    monkeypatch.syspath_prepend(str(shadow))
    found = [
        (e.distribution_version, e.name) for e in installed_entries() if normalized(e.distribution) == "twice-dist"
    ]
    assert found == [("2.0", "new")]


def test_unreadable_entry_points_are_a_problem_of_their_distribution_only(site: Path) -> None:
    install(site, "torn-dist", "1.0", "[grpo]\nthis line has no equals sign\n")
    install(site, "foreign-dist", "1.0", "[other]\nthis line has no equals sign\n")
    host = Host.discover()
    problems = [problem for problem in host.problems if problem.distribution == "torn-dist"]
    assert [problem.state for problem in problems] == ["broken"]
    assert "entry points" in problems[0].line
    assert any(entry.distribution == "grpo-kit" for entry in installed_entries())


def test_the_variable_keeps_what_it_names(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "pinned-dist", "1.0", "[grpo]\nrewards = one_module\nextras = two_module\n")
    monkeypatch.setenv(PIN_VARIABLE, "Pinned_Dist")
    always = ["advantages", "agents", "losses"]  # of the engine
    assert [entry.name for entry in installed_entries()] == [*always, "extras", "rewards"]
    monkeypatch.setenv(PIN_VARIABLE, "pinned-dist/extras")
    assert [entry.name for entry in installed_entries()] == [*always, "extras"]
    monkeypatch.setenv(PIN_VARIABLE, " extras , envs ")
    assert [entry.name for entry in installed_entries()] == ["advantages", "agents", "envs", "losses", "extras"]


def test_an_unknown_pin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIN_VARIABLE, "rewads")
    with pytest.raises(UsageError, match=r"'rewads'.*Did you mean 'rewards'"):
        Host.discover()


def test_an_empty_pin_keeps_all() -> None:
    entries = [Entry("d", "1", "a", lambda: None), Entry("d", "1", "b", lambda: None)]
    assert pinned(entries, " , ") == tuple(entries)
