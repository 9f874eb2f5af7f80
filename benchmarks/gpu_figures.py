"""Keeps what a part of benchmarks/gpu.py measured in a JSON file, which is whole after each figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Figures:
    """The results of a part in a file, which is whole after each of them."""

    def __init__(self, path: Path, values: dict[str, Any] | None = None) -> None:
        self._path = path
        self._values: dict[str, Any] = {"state": None, "problem": ""} if values is None else values

    @classmethod
    def read(cls, path: Path) -> Figures:
        """Returns what a file holds; a new one where there is none."""
        return cls(path, json.loads(path.read_text()) if path.is_file() else None)

    @property
    def state(self) -> str | None:
        """How the part ended; None while it runs."""
        state: str | None = self._values["state"]
        return state

    def add(self, name: str, value: Any) -> None:
        self._values[name] = value
        self._write()

    def end(self, state: str, problem: str = "") -> None:
        self._values |= {"state": state, "problem": problem}
        self._write()

    def line(self) -> str:
        """Returns what is printed of a part: why it ended, or how many figures it has."""
        count = len(self._values.keys() - {"state", "problem", "seconds"})
        return f"{self._values.get('seconds', 0):6.1f} s  {self._values['problem'] or f'{count} figures'}"

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self._values, indent=2) + "\n")
        unfinished.replace(self._path)
