"""Compares installed versions with the version sets that the tests ran on; tests/test_versions.py checks the sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

TRIED: Final[Mapping[str, Mapping[str, str]]] = {
    "oldest": {
        "torch": "2.11.0",
        "transformers": "5.15.0",
        "trl": "1.16.0",
        "peft": "0.20.0",
        "accelerate": "1.10.1",
        "datasets": "4.7.0",
        "gymnasium": "1.2.0",
        "numpy": "2.0.0",
        "sympy": "1.13.3",
        "math-verify": "0.9.0",
        "openai": "2.0.0",
    },
    "locked": {
        "torch": "2.13.0",
        "transformers": "5.19.0",
        "trl": "1.16.0",
        "peft": "0.21.2",
        "accelerate": "1.15.0",
        "datasets": "5.2.0",
        "gymnasium": "1.4.0",
        "numpy": "2.3.5",
        "sympy": "1.14.0",
        "math-verify": "0.9.0",
        "openai": "3.57.0",
    },
    "newest": {
        "torch": "2.15.0",
        "transformers": "5.24.0",
        "trl": "1.16.0",
        "peft": "0.21.2",
        "accelerate": "1.15.0",
        "datasets": "5.2.0",
        "gymnasium": "1.4.0",
        "numpy": "2.5.5",
        "sympy": "1.14.0",
        "math-verify": "0.9.0",
        "openai": "3.57.0",
    },
}
LIBRARIES: Final = tuple(TRIED["locked"])


def compare_with_tried(installed: Mapping[str, str]) -> str:
    """Returns which tried set the installed versions are, or how they differ from all of them."""
    versions = {name: _public(installed[name]) for name in LIBRARIES if name in installed}
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


def _public(version: str) -> Version:
    """Drops the build suffix, so that the CPU build and the CUDA build of torch are one version."""
    return Version(Version(version).public)
