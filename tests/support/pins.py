"""Reads the versions that a file of pins holds."""

from __future__ import annotations

from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]


def pins_of(path: str | Path) -> dict[str, Version]:
    """The versions that a file pins, by canonical name."""
    lines = (ROOT / path).read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}
