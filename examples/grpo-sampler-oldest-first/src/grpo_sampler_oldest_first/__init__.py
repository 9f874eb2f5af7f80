"""Chooses the rows that were asked longest ago.

Keep the imports light: every grpo command that lists plugins makes them.
"""

from __future__ import annotations

from grpo import RowsSeen, SamplerSpec, hookimpl, sampler

grpo_contract = 1


@sampler(version=1)
def oldest_first(seen: RowsSeen, *, solved: float = 0.9, again: int = 20) -> list[int]:
    """Asks the row that was asked longest ago first; one that was solved rests.

    It is a function of what it is given, so a run that resumes asks the same rows.

    Args:
        seen: the rows, and what became of each.
        solved: the pass rate from which on a row rests.
        again: the steps for which it rests; no row is left out for good.
    """
    free = seen.longest_ago([row for row in range(seen.rows) if row not in seen.taken])
    resting = [row for row in free if _rests(seen, row, solved, again)]
    return [*(row for row in free if row not in resting), *resting][: seen.count]


def _rests(seen: RowsSeen, row: int, solved: float, again: int) -> bool:
    if row not in seen.visits:
        return False
    last = seen.visits[row][-1]
    return last.rate is not None and last.rate >= solved and seen.step - last.step < again


@hookimpl
def grpo_samplers() -> list[SamplerSpec]:
    """Offers the sampler to grpo."""
    return [oldest_first]
