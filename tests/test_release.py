"""Checks what a release consists of: one version everywhere, pinned actions and hooks, and a lock of uv that agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from pins import pins_of

import grpo

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
ADDRESSES = ("https://pypi.org/simple", "https://files.pythonhosted.org/packages/")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(.+)\] - (unreleased|\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    assert newest
    assert newest[1] == grpo.__version__
    assert f"\n[{newest[1]}]: {PROJECT['urls']['Repository']}/releases/tag/v{newest[1]}\n" in text


def test_the_citation_has_the_version_license_and_address_of_the_package() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    assert (str(citation["version"]), citation["license"]) == (grpo.__version__, PROJECT["license"])
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_every_address_of_the_package_is_in_one_repository() -> None:
    files = [ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted((ROOT / ".github").rglob("*.yml"))]
    texts = [*PROJECT["urls"].values(), *(file.read_text(encoding="utf-8") for file in files)]
    owners = {owner for text in texts for owner in re.findall(r"https://github\.com/([\w-]+/[\w-]+)", text)}
    assert owners == {PROJECT["urls"]["Repository"].removeprefix("https://github.com/")}


def test_workflows_use_actions_by_their_full_hash_with_the_version_beside_it() -> None:
    texts = [file.read_text(encoding="utf-8") for file in WORKFLOW.parent.glob("*.yml")]
    lines = [line for text in texts for line in text.splitlines() if "uses:" in line]
    assert len(lines) >= 7
    for line in lines:
        assert re.fullmatch(r"\s+- uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_only_the_job_that_publishes_may_ask_for_an_identity_and_it_waits_for_the_build() -> None:
    jobs = read_yaml(WORKFLOW)["jobs"]
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"


def test_hooks_are_pinned_and_ruff_is_that_of_the_lock() -> None:
    hooks: list[Any] = []
    for repository in read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]:
        hooks += repository["hooks"]
        assert repository["repo"] == "local" or re.fullmatch("[0-9a-f]{40}", repository["rev"])
    ruffs = [hook["additional_dependencies"] for hook in hooks if hook["id"].startswith("ruff-")]
    assert ruffs == [[f"ruff=={pins_of('constraints.txt')['ruff']}"]] * 2


def test_the_lock_of_uv_has_the_versions_of_constraints_and_canonical_addresses() -> None:
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    addresses = re.findall(r'(?:registry|url) = "([^"]+)"', text)
    assert [address for address in addresses if not address.startswith(ADDRESSES)] == []
    versions: dict[str, set[str]] = {}
    for package in tomllib.loads(text)["package"]:
        versions.setdefault(package["name"], set()).add(package.get("version", ""))
    pins = {name: str(version) for name, version in pins_of("constraints.txt").items() if name in versions}
    assert len(pins) >= 100
    other = {name: sorted(versions[name]) for name, version in pins.items() if version not in versions[name]}
    assert other == {}, "uv.lock has other versions than constraints.txt; run: make uv-lock"


def test_the_lock_of_uv_was_made_for_these_requirements() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    [own] = [package for package in packages if package["name"] == PROJECT["name"]]
    locked = {
        (required["name"], SpecifierSet(required.get("specifier", "")))
        for required in own["metadata"]["requires-dist"]
        if "extra ==" not in required.get("marker", "")
    }
    needed = [Requirement(line) for line in PROJECT["dependencies"]]
    assert locked == {(canonicalize_name(one.name), one.specifier) for one in needed}, "run: make uv-lock"
    assert set(own["metadata"]["provides-extras"]) == set(PROJECT["optional-dependencies"]), "run: make uv-lock"
