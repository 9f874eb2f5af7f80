"""Compares each installed library with the sets that were tried together; tests/test_versions.py checks these."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Final

from packaging.requirements import Requirement
from packaging.version import Version

import grpo
from grpo.core.doctor.lines import Line
from grpo.core.record.versions import installed_versions
from grpo.core.rollout.engine.release import FIRST, LAST, vllm_version

_SETS = """
                    oldest   locked   newest
    torch           2.11.0   2.13.0   2.15.0
    transformers    5.15.0   5.19.0   5.24.0
    trl             1.16.0   1.16.0   1.16.0
    peft            0.20.0   0.21.2   0.21.2
    accelerate      1.10.1   1.15.0   1.15.0
    datasets        4.7.0    5.2.0    5.2.0
    gymnasium       1.2.0    1.4.0    1.4.0
    numpy           2.0.0    2.3.5    2.5.5
    sympy           1.13.3   1.14.0   1.14.0
    math-verify     0.9.0    0.9.0    0.9.0
    openai          2.0.0    3.57.0   3.57.0
"""
_HEADS, *_ROWS = (line.split() for line in _SETS.strip().splitlines())
TRIED: Final = {head: {name: versions[at] for name, *versions in _ROWS} for at, head in enumerate(_HEADS)}
LIBRARIES: Final = tuple(TRIED["locked"])


def compare_with_tried(installed: Mapping[str, str]) -> str:
    """Returns which tried set the installed versions are, or how they differ from all of them."""
    # Without the build suffix, so that the CPU build and the CUDA build of torch are one version.
    versions = {name: Version(Version(installed[name]).public) for name in LIBRARIES if name in installed}
    for label, tried in TRIED.items():
        if all(version == Version(tried[name]) for name, version in versions.items()):
            return f"the {label} set"
    newest = {name: max(Version(tried[name]) for tried in TRIED.values()) for name in versions}
    oldest = {name: min(Version(tried[name]) for tried in TRIED.values()) for name in versions}
    newer = [f"{name} {version} (to {newest[name]})" for name, version in versions.items() if version > newest[name]]
    older = [f"{name} {version} (from {oldest[name]})" for name, version in versions.items() if version < oldest[name]]
    if newer:
        return f"newer than any tried set: {', '.join(newer)}"
    if older:
        return f"older than any tried set: {', '.join(older)}"
    return "between tried sets"


DISTRIBUTION = "grpo-kit"
TOLD = ("torch", "transformers", "trl", "peft")  # named one by one even where all is well
EXTRAS = ("deepspeed", "ray")


def versions() -> Iterator[Line]:
    """Yields a line for our own release, for the libraries that matter most, and for every one that does not fit."""
    yield Line("grpo", "ok", f"{grpo.__version__} on Python {platform.python_version()}, {platform.platform()}")
    fitting: list[str] = []
    for wanted in _required():
        name, range_ = wanted.name, str(wanted.specifier)
        extra = name if wanted.marker is not None else None
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            if extra is None:
                yield Line(name, "error", "not installed", f"pip install '{name}{range_}'")
            continue
        if wanted.specifier.contains(version, prereleases=True):
            fitting += [f"{name} {version}"] if name in TOLD or extra else []
        else:
            what = f"grpo-kit[{extra}]" if extra else f"{name}{range_}"
            text = f"{version} is installed; tried together was {range_}"
            yield Line(name, "warning" if extra else "error", text, f"pip install '{what}'")
    compared = compare_with_tried(installed_versions(LIBRARIES))
    yield Line("libraries", "ok", ": ".join(filter(None, [", ".join(fitting), compared])))
    yield _vllm()


def _required() -> list[Requirement]:
    try:
        given = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or []]
    except metadata.PackageNotFoundError:
        given = []
    always = [wanted for wanted in given if wanted.marker is None or wanted.marker.evaluate({"extra": ""})]
    extras = [wanted for name in EXTRAS for wanted in given if wanted.name == name and wanted not in always]
    return [*always, *dict.fromkeys(extras)]


def _vllm() -> Line:
    version = vllm_version()
    if version is None:
        return Line("vLLM", "ok", "not installed; runs sample with transformers (--rollout hf)")
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if FIRST <= release <= LAST:
        return Line("vLLM", "ok", f"{version}, whose sync of weights was proven")
    text = f"{version}; weight sync was proven with 0.{FIRST[1]} to 0.{LAST[1]}, and --rollout vllm refuses others"
    return Line("vLLM", "warning", text, "pip install 'grpo-kit[vllm]'")
