"""Decides the order in which a run uses its rows; a seed fixes it, so that a resumed run continues."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Source:
    rows: int  # how many
    share: float = 1.0  # of all the rows of the run that are its, in any unit
    ordered: bool = False  # they are gone through once, from first to last


def row_order(rows: int, wanted: int, seed: int, *, ordered: bool = False) -> list[int]:
    """Returns `wanted` row numbers: seeded shuffled passes, or with `ordered` one even pass from first to last."""
    if ordered:
        return [number * rows // wanted for number in range(wanted)]
    generator = random.Random(seed)
    order: list[int] = []
    while len(order) < wanted:
        order += generator.sample(range(rows), rows)
    return order[:wanted]


def mixed_order(sources: Sequence[Source], wanted: int, seed: int) -> list[int]:
    """Returns `wanted` row numbers of sources, numbered one after the other; each has its share throughout."""
    if len(sources) == 1:
        return row_order(sources[0].rows, wanted, seed, ordered=sources[0].ordered)
    turns = _turns([source.share for source in sources], wanted)
    orders = [
        iter(row_order(source.rows, turns.count(number), seed, ordered=source.ordered))
        for number, source in enumerate(sources)
    ]
    firsts = [0, *accumulate(source.rows for source in sources)]
    return [firsts[number] + next(orders[number]) for number in turns]


def _turns(shares: Sequence[float], wanted: int) -> list[int]:
    total = sum(shares)
    had = [0] * len(shares)
    turns: list[int] = []
    for place in range(1, wanted + 1):
        behind = [place * share / total - count for share, count in zip(shares, had, strict=True)]
        turn = behind.index(max(behind))
        had[turn] += 1
        turns.append(turn)
    return turns
