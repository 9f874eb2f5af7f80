"""Holds the result of validating an environment with its gold solutions, and prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from grpo.core.text.printable import aligned, counted, one_line

_FEW = 3
SHOWN = 20  # refused rows in the text; as_json has them all
_WIDE, _WIDEST = 160, 320  # characters of a solution, and of a reason


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row whose gold solution is not accepted, so that no policy can learn it."""

    index: int  # its number among the rows of the split, from 0
    place: str  # where it was written ("rows.jsonl, line 3"), or the seed of its episode
    reason: str  # who refuses the solution, and why
    solution: str  # what was played, one turn after another; calls of tools as JSON


@dataclass(frozen=True, slots=True)
class WeakRow:
    """A row that pays for what solves nothing."""

    # index, place: as of a `RefusedRow`
    index: int
    place: str
    cheats: tuple[str, ...]  # what the completions or agents do that are paid ("returns True")


@dataclass(frozen=True, slots=True)
class GoldScores:
    """What one reward gave the gold solutions."""

    reward: str  # its name; of a component `rubric.component`
    # mean, lowest: of its scores, None without any
    mean: float | None
    lowest: float | None
    silence: float | None  # the mean score of saying nothing to the same rows
    # abstained, failed: how often it gave none
    abstained: int
    failed: int


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a validation."""

    env: str  # the environment's SPEC
    split: str  # "train" or "test"
    rows: int  # how many were looked at
    without: tuple[str, ...]  # the places of those that have no gold solution; nothing is known of them
    refused: tuple[RefusedRow, ...]  # those whose solution is not accepted, in order
    rewards: tuple[GoldScores, ...]  # what each reward gave, and after a rubric each of its components
    verifier: str | None  # the verifier's name, or None
    verdicts: Mapping[str, int]  # "right", "wrong", "undecided" and "failed" to how often it said so; empty without one
    silence_right: int = 0  # rows where the verifier accepts saying nothing too
    notes: tuple[str, ...] = ()  # what to look at although it refuses no row
    weak: tuple[WeakRow, ...] = ()  # rows for which the verifier accepts one of its generic cheats

    @property
    def ok(self) -> bool:
        """True when every row has an accepted gold solution, and silence is not accepted everywhere as well."""
        return not self.without and not self.refused and self.silence_right < self.rows

    def lines(self) -> Iterator[str]:
        """Yields the lines of the report."""
        accepted = self.rows - len(self.without) - len(self.refused)
        yield (
            f"env {self.env}, split {self.split}: {counted(self.rows, 'row')}, "
            f"{counted(accepted, 'gold solution')} accepted, "
            f"{len(self.refused)} refused, {len(self.without)} without one"
        )
        if len(self.without) == self.rows:
            yield "nothing was validated: its episodes have neither a demonstration nor a gold answer"
            yield from self._weak_lines()
            return
        if self.without:
            more = ", ..." if len(self.without) > _FEW else ""
            yield f"without a gold solution: {', '.join(self.without[:_FEW])}{more}"
        if self.verifier is not None:
            verdicts = ", ".join(f"{count} {what}" for what, count in self.verdicts.items())
            yield f"verifier {self.verifier}: {verdicts}"
        if self.rewards:
            heading = ("reward", "mean", "lowest", "silence", "abstain", "failure")
            yield from ["", *aligned([heading, *map(_cells, self.rewards)], right=True)]
        if self.silence_right:
            yield f"an empty completion is right too in {self.silence_right} of {counted(self.rows, 'row')}"
        yield from [f"note: {note}" for note in self.notes]
        yield from self._weak_lines()
        for row in self.refused[:SHOWN]:
            text = one_line(row.solution, len(row.solution) + 1)
            yield from ("", f"{row.place}: {one_line(row.reason, _WIDEST)}")
            yield "  | " + (text if len(text) <= _WIDE else "…" + text[1 - _WIDE :])  # an answer stands at the end
        if len(self.refused) > SHOWN:
            yield f"\nand {len(self.refused) - SHOWN} more that are refused: --json lists all, with their whole texts"

    def _weak_lines(self) -> Iterator[str]:
        if self.weak:
            yield f"weak rows, which pay for what solves nothing: {len(self.weak)}"
            yield from (f"  {row.place}: {', '.join(row.cheats)}" for row in self.weak[:SHOWN])
        if len(self.weak) > SHOWN:
            yield f"  and {len(self.weak) - SHOWN} more: --json lists all"

    def as_json(self) -> dict[str, Any]:
        """Returns the report as values that JSON can hold."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _cells(scores: GoldScores) -> tuple[str, ...]:
    numbers = (scores.mean, scores.lowest, scores.silence)
    shown = ("-" if number is None else f"{number:.4f}" for number in numbers)
    return (scores.reward, *shown, str(scores.abstained), str(scores.failed))
