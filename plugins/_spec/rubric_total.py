"""Combines the values of a rubric's components into one.

A value is a score, None (the component abstained), `FAILED`, or `STOPPED` (a gate before it did not pass, so it was not
called). An abstention is never a zero, and a failure of what is needed makes the whole rubric fail:

- "sum": S = sum of w_i s_i. A stopped component counts its lowest, so that failing a gate never pays. Where components
  abstain, the sum of the others is stretched to the range of all: with [L, H] the range of the whole sum and [l, h]
  that of the components with a value, L + (S - l) / (h - l) * (H - L). Without a finite range for that, or with no
  score at all, the rubric abstains. A component of weight 0 is never needed, unless it is a gate.
- "all": 0 where some component does not pass; else it fails where one failed; else 1. "any": 1 where some component
  passes; else it fails where one failed; else 0. Abstentions are left out, and with nothing else the rubric abstains.

A gate that abstains is open; one that failed is shut, and the rubric fails with it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Combine = Literal["sum", "all", "any"]
_ROUNDING = 1e-9


class Lack(enum.Enum):
    """Why a component has no value of its own."""

    FAILED = "failed"
    STOPPED = "stopped"


FAILED, STOPPED = Lack.FAILED, Lack.STOPPED
Value = float | None | Lack


@dataclass(frozen=True, slots=True)
class Term:
    """A component's part in the total."""

    weight: float  # in the sum
    range: tuple[float, float]  # lowest and highest score
    passes: float  # the lowest score that passes
    gate: bool = False  # whether what follows depends on its passing

    @property
    def reach(self) -> tuple[float, float]:
        """The lowest and highest that it adds to the sum."""
        if not self.weight:
            return 0.0, 0.0
        low, high = self.weight * self.range[0], self.weight * self.range[1]
        return min(low, high), max(low, high)


def passes(term: Term, score: float) -> bool:
    """Returns whether a score passes; a rounding error below the limit still does."""
    return score >= term.passes - _ROUNDING * max(1.0, abs(term.passes))


def opens(term: Term, value: Value) -> bool:
    """Returns whether a gate lets a completion through: it passes, or abstains."""
    return value is None or (not isinstance(value, Lack) and passes(term, value))


def reach(combine: Combine, terms: Sequence[Term]) -> tuple[float, float]:
    """Returns the lowest and highest total."""
    if combine != "sum":
        return 0.0, 1.0
    return math.fsum(term.reach[0] for term in terms), math.fsum(term.reach[1] for term in terms)


def total(combine: Combine, terms: Sequence[Term], values: Sequence[Value]) -> Value:
    """Returns the rubric's score, None where it abstains, or `FAILED`."""
    return _sum(terms, values) if combine == "sum" else _logical(combine, terms, values)


def _sum(terms: Sequence[Term], values: Sequence[Value]) -> Value:
    pairs = [(term, value) for term, value in zip(terms, values, strict=True) if term.weight or term.gate]
    if any(value is FAILED for _, value in pairs):
        return FAILED
    valued = [(term, value) for term, value in pairs if value is not None]
    if all(isinstance(value, Lack) for _, value in valued):
        return None if pairs else 0.0
    added = math.fsum(term.reach[0] if isinstance(value, Lack) else term.weight * value for term, value in valued)
    low, high = reach("sum", terms)
    if any(value is None and term.weight for term, value in pairs):
        own_low, own_high = reach("sum", [term for term, _ in valued])
        if not all(map(math.isfinite, (low, high))) or own_low == own_high:
            return None
        added = low + (added - own_low) / (own_high - own_low) * (high - low)
    return min(max(added, low), high)


def _logical(combine: Combine, terms: Sequence[Term], values: Sequence[Value]) -> Value:
    known = [passes(t, v) for t, v in zip(terms, values, strict=True) if v is not None and not isinstance(v, Lack)]
    deciding = combine == "any"
    if deciding in known:
        return float(deciding)
    if any(value is FAILED for value in values):
        return FAILED
    return float(not deciding) if known else None
