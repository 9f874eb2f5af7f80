"""Collects the numbers by which the page filters and sorts rollouts, without their texts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from grpo.core.record.browse import OUTCOME
from grpo.core.report.scan import KINDS, Scan, is_failed

if TYPE_CHECKING:
    from grpo.core.check.diff import Change

VERDICTS = (None, False, True)  # by the number that the page reads


@dataclass(slots=True)
class Index:
    """Columns of numbers, one for each rollout; a reward that appears late has no outcome before."""

    scan: Scan  # of the run, which knows the names that numbers stand for
    changes: Sequence[Change] | None = None  # what other rewards make of each rollout of the run
    columns: dict[str, list[Any]] = field(default_factory=dict)  # the numbers by name
    count: int = 0  # the rollouts that are in every column
    _prompts: dict[bytes, int] = field(default_factory=dict)

    def add(self, place: int, step: int, number: int, row: Mapping[str, Any]) -> None:
        """Adds a rollout. `step`, `number`: where it is recorded."""
        asked = repr((row["env"] or "", row["prompt"])).encode("utf-8", "replace")
        prompt = hashlib.blake2b(asked, digest_size=16).digest()  # the text itself is not kept
        values: dict[str, Any] = {
            "step": step,
            "number": number,
            "group": row["group"],
            "tokens": row["tokens"],
            "prompt": self._prompts.setdefault(prompt, len(self._prompts)),
            "env": self.scan.envs.index(row["env"] or ""),
            "finish": self.scan.finishes.index(row["finish_reason"]),
            "verdict": VERDICTS.index(row["right"]),
            "failed": is_failed(row, [name for name in self.scan.rewards if OUTCOME + name in row]),
            "reward": row["reward"],
            "advantage": row["advantage"],
        }
        for at, name in enumerate(self.scan.rewards):
            values[f"kind{at}"] = KINDS.index(row.get(OUTCOME + name) or "")
            values[f"score{at}"] = row.get(f"score.{name}")
        if self.changes is not None:
            change = self.changes[place]
            values |= {"new_reward": change.new.total, "new_advantage": change.new.advantage}
            values |= {"shift": change.shift, "flipped": change.flipped}
        for key, value in values.items():
            if key not in self.columns:
                self.columns[key] = [0 if key.startswith("kind") else None] * self.count
            self.columns[key].append(value)
        self.count += 1

    def written(self) -> tuple[list[tuple[str, str]], bytes]:
        """Returns name and type of each column, and the columns one after the other."""
        kinds = [(name, _type_of(name)) for name in self.columns]
        arrays = (_array(self.columns[name], kind).tobytes() for name, kind in kinds)
        return kinds, b"".join(arrays)


def _type_of(name: str) -> str:
    if name.startswith(("score", "reward", "advantage", "new_", "shift")):
        return "f4"
    if name.startswith(("kind", "failed", "finish", "verdict", "flipped")):
        return "u1"
    return "u2" if name == "env" else "u4"


def _array(values: Sequence[Any], kind: str) -> np.ndarray[Any, Any]:
    if kind == "f4":
        with np.errstate(over="ignore"):  # what 32 bits cannot hold is infinite in a list, and exact where it is read
            return np.array([math.nan if value is None else value for value in values], dtype="<f4")
    return np.array(values, dtype=f"<{kind}")
