"""What is read without `importlib.metadata` is what it reads: the same distributions, in the same order."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from grpo.plugins._host.entry_points import declared

GROUP = "grpo.test"
ABOUT = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: text\n\nName: not this\n"
POINTS = "[console_scripts]\nx = y:z\n\n[grpo.test]\nb = json\na = json.decoder:JSONDecoder.decode\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


def put(
    folder: Path, name: str, points: str, kind: str = "dist-info", about: str = ABOUT, version: str = "1.0"
) -> Path:
    info = folder / f"{name}-{version}.{kind}"
    info.mkdir(parents=True)
    metadata = "METADATA" if kind == "dist-info" else "PKG-INFO"
    (info / metadata).write_text(about.format(name=name, version=version))
    (info / "entry_points.txt").write_text(points)
    return info


def ours(group: str = GROUP) -> list[tuple[str, str, str]]:
    return [(e.distribution, e.distribution_version, e.name) for entries in declared(group) for e in entries]


def theirs(group: str = GROUP) -> list[tuple[str, str, str]]:
    found = []
    for distribution in importlib.metadata.distributions():
        points = sorted(point.name for point in distribution.entry_points if point.group == group)
        found += [(distribution.metadata["Name"], distribution.version, name) for name in points]
    return found


@pytest.mark.parametrize("group", ["grpo", "console_scripts", "pytest11"])
def test_the_installed_distributions_are_the_same(group: str) -> None:
    assert ours(group) == theirs(group)
    assert ours(group)


@pytest.mark.parametrize(
    "points",
    [
        POINTS,
        POINTS.replace(" = ", "=").replace("\n", "\r\n"),
        f"# first\n{POINTS}  # and last\n",
        "[grpo.test]\nwith blanks in = json\nd-o.t_s = json : decoder\nextra = json:loads [more,all]\n",
        "[grpo.test]\na = json\n[other]\nb = json\n[grpo.test]\nc = json\n",
        "[grpo.test]\n[other]\na = json\n",
        "a = json\n[grpo.test]\nb = json\n",
        "[other]\na = [grpo.test]\n",
        "[grpo.test]\na = json:decoder:more\nb =\n",
    ],
)
@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_every_way_to_write_entry_points_reads_the_same(site: Path, points: str, kind: str) -> None:
    put(site, "some-dist", points, kind)
    assert ours() == theirs()


@pytest.mark.parametrize(
    "about",
    [
        ABOUT.replace("Name", "name").replace("\n", "\r\n"),
        ABOUT.replace("Name: ", "Name:").replace("Version: ", "Version:   "),
        ABOUT.replace("Summary: text", "Summary: text\n  Name: folded"),
        ABOUT.replace("{name}", "\n  {name}"),
        ABOUT.replace("Summary: text", "Version: 3.0"),
    ],
)
def test_every_way_to_write_metadata_reads_the_same(site: Path, about: str) -> None:
    put(site, "some_dist", POINTS, about=about)
    assert ours() == theirs()
    assert len(ours()) == 2


def test_metadata_without_a_name_keeps_its_entries(site: Path) -> None:
    put(site, "some-dist", POINTS, about="Metadata-Version: 2.1\n")
    assert [name for _, _, name in ours()] == ["a", "b"]
    assert {distribution for distribution, _, _ in ours()} == {"(unnamed)"}


def test_all_places_of_the_path_are_searched_in_order(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.0", "2.0"):
        put(site, "in-one-place", POINTS, version=version)
    put(tmp_path / "here", "in-the-working-folder", POINTS)
    egg = put(tmp_path, "in-an-egg", POINTS)
    (egg / "METADATA").rename(egg / "PKG-INFO")
    egg.rename((tmp_path / "old.egg").mkdir() or tmp_path / "old.egg" / "EGG-INFO")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("zipped-1.0.dist-info/METADATA", ABOUT.format(name="zipped", version="1.0"))
        archive.writestr("zipped-1.0.dist-info/entry_points.txt", POINTS)
    monkeypatch.chdir(tmp_path / "here")
    places = ["", tmp_path / "old.egg", tmp_path / "archive.zip", tmp_path / "nowhere", site]
    monkeypatch.setattr(sys, "path", [str(place) for place in places])
    assert ours() == theirs()
    found = ["in-the-working-folder", "in-an-egg", "zipped", "in-one-place"]
    assert list(dict.fromkeys(distribution for distribution, _, _ in ours())) == found


def test_another_finder_is_asked_in_its_turn(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = importlib.metadata.Distribution.at(put(tmp_path / "elsewhere", "found-elsewhere", POINTS))
    put(site, "on-the-path", POINTS)

    class Finder:
        @staticmethod
        def find_spec(*arguments: object) -> None:
            return None

        @staticmethod
        def find_distributions(context: object) -> Iterator[importlib.metadata.Distribution]:
            yield elsewhere

    def names(found: Iterable[tuple[str, str, str]]) -> list[str]:
        return list(dict.fromkeys(distribution for distribution, _, _ in found))

    for finders in ([Finder, *sys.meta_path], [*sys.meta_path, Finder]):
        monkeypatch.setattr(sys, "meta_path", finders)
        assert names(ours()) == names(theirs())
        assert set(names(ours())) == {"found-elsewhere", "on-the-path"}


def test_a_plain_distribution_is_read_without_importlib_metadata(site: Path) -> None:
    put(site, "some-dist", POINTS)
    kept = sys.modules.pop("importlib.metadata")
    try:
        assert len(ours()) == 2
        assert "importlib.metadata" not in sys.modules
    finally:
        sys.modules["importlib.metadata"] = kept


def test_loading_gives_the_module_or_what_is_named_in_it(site: Path) -> None:
    import json

    put(site, "some-dist", POINTS + "c = no_such_module\nd = json:no.such\n")
    loads = {entry.name: entry.load for entries in declared(GROUP) for entry in entries}
    assert loads["b"]() is json
    assert loads["a"]() is json.JSONDecoder.decode
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        loads["c"]()
    with pytest.raises(ImportError, match=r"the entry point names 'json:no\.such', and that module has no 'no\.such'"):
        loads["d"]()
