"""A distribution with one module of plugins, as an installer would leave it."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, source: str) -> None:
    """Writes the module and the metadata of a distribution, version 1.5, into a folder."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.5.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[grpo]\nmain = {module}\n")
