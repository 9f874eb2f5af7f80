"""Compares each installed library with the versions that were tried together."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.requirements import Requirement

import grpo
from grpo.core.doctor.lines import Line
from grpo.core.doctor.tried import LIBRARIES, compare_with_tried
from grpo.core.rollout.engine.release import FIRST, LAST, vllm_version

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
    yield Line("libraries", "ok", f"{', '.join(fitting)}: {compare_with_tried(_installed(LIBRARIES))}")
    yield _vllm()


def _required() -> list[Requirement]:
    """Returns what every run needs, and of the extras those whose versions matter."""
    try:
        given = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or []]
    except metadata.PackageNotFoundError:
        given = []
    always = [
        requirement for requirement in given if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    extras = [
        requirement
        for name in EXTRAS
        for requirement in given
        if requirement.name == name and requirement not in always
    ]
    return [*always, *dict.fromkeys(extras)]


def _installed(names: Iterable[str]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _vllm() -> Line:
    version = vllm_version()
    if version is None:
        return Line("vLLM", "ok", "not installed; runs sample with transformers (--rollout hf)")
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if FIRST <= release <= LAST:
        return Line("vLLM", "ok", f"{version}, whose sync of weights was proven")
    return Line(
        "vLLM",
        "warning",
        f"{version}; weight sync was proven with 0.{FIRST[1]} to 0.{LAST[1]}, and --rollout vllm refuses others",
        "pip install 'grpo-kit[vllm]'",
    )
