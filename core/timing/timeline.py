"""Breaks down the time and the tokens of a run.

The parts follow each other on the first process and add up; what goes on beside them counts where something waited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.core.text.stats import mean
from grpo.core.train.report import BESIDE_THE_UPDATE, update_seconds

SAMPLING, SCORING, WAITING = "sampling", "scoring", "waiting for samples"
RECORDS, CANARIES, UPDATE = "records", "canaries", "update"
HELD_OUT, CHECKPOINTS = "held-out accuracy", "checkpoints"
# Of time/step; what is left of it is the update.
INSIDE = dict(zip((SAMPLING, SCORING, WAITING, RECORDS, CANARIES), BESIDE_THE_UPDATE, strict=True))
BETWEEN = {HELD_OUT: "time/held_out", CHECKPOINTS: "time/checkpoint"}
CALLS = "time/rewards/"
SHOWN = 0.03  # the least share of the time that is worth a word


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds of a run by what they were spent on."""

    steps: int  # how many steps they are of
    parts: Mapping[str, float]  # part to seconds; together all of the time of these steps
    sync: float  # seconds of handing weights over, which are part of sampling
    calls: Mapping[str, float]  # reward to seconds of its calls, one after the other, however many there were at a time
    speed: float = 0.0  # tokens sampled in a second; 0.0 where nothing was sampled but while the policy trained
    idle: float = 0.0  # share of the sampled tokens that taught nothing
    padding: float = 0.0  # share of the positions that the update computed for no token

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(self.parts.values())

    def share(self, part: str) -> float:
        """Returns which share of the time a part took; 0 of no time at all."""
        return self.parts[part] / self.total if self.total else 0.0

    def text(self) -> str:
        """Returns the shares, largest first, as one line; "" of no time at all."""
        shares = sorted(((self.share(part), part) for part in self.parts), reverse=True)
        return ", ".join(f"{share:.0%} {part}" for share, part in shares if share >= SHOWN)

    def tokens(self) -> str:
        """Returns what became of the tokens, as one line; "" where there is nothing to say."""
        parts = [f"{self.speed:,.0f} sampled a second"] if self.speed else []
        parts += [f"{self.idle:.0%} without signal"] if self.idle >= SHOWN else []
        parts += [f"{self.padding:.0%} of the update is padding"] if self.padding >= SHOWN else []
        return ", ".join(parts)


def timeline(rows: Sequence[Mapping[str, Any]], *, whole: bool = False) -> Timeline:
    """Adds up the time of steps; unless `whole`, without the first and the last of four and more steps."""
    steps = [row for row in rows if row.get("time/step")]
    if not whole:
        rows = steps = steps[1:-1] if len(steps) > 3 else steps
    parts = {part: _sum(rows, name) for part, name in (INSIDE | BETWEEN).items()}
    parts[UPDATE] = sum(update_seconds(row) for row in steps)
    rewards = sorted({name for row in steps for name in row if name.startswith(CALLS)})
    calls = {name.removeprefix(CALLS): _sum(steps, name) for name in rewards}
    return Timeline(
        steps=len(steps),
        parts=parts,
        sync=_sum(steps, "sync/seconds"),
        calls=calls,
        speed=_mean(steps, "time/tokens_per_second"),
        idle=_mean(steps, "sampling/taught_nothing"),
        padding=_mean(steps, "update/padding"),
    )


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(row.get(name) or 0.0 for row in rows)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return mean([row[name] for row in rows if row.get(name) is not None] or [0.0])
