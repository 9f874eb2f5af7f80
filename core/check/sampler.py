"""Checks a sampler on made-up runs: it must choose existing rows, repeatably, and leave none out for good."""

from __future__ import annotations

import random
from collections.abc import Callable

from grpo.core.check.report import Findings, Report, title_of
from grpo.plugins._spec.binding import BoundSampler
from grpo.plugins.errors import PluginError
from grpo.plugins.host import bound_of
from grpo.plugins.sampling import RowsSeen, Visit
from grpo.plugins.specs import SamplerSpec

ROWS, COUNT, STEPS = 30, 4, 240
CHANCES = (1.0, 0.5, 0.0)  # of an answer of a row to be right, in turn
SIZE = 8  # answers to a row
Learned = dict[int, list[Visit]]


def check_sampler(sampler: str | SamplerSpec | BoundSampler) -> Report:
    """Checks a sampler: a SPEC ("curriculum:floor=0.2"), a `SamplerSpec` or a bound sampler.

    Returns what does not hold; whatever the sampler does, nothing is raised on its account. Raises UsageError for a
    SPEC that names no sampler, or options that it does not take.
    """
    bound = bound_of(sampler, BoundSampler)
    findings = Findings()
    _run(bound, findings, "choices", lambda row, seed: _visit(seed, CHANCES[row % len(CHANCES)]))
    _run(bound, findings, "rewards without a lowest score", lambda row, seed: Visit(seed, None, row % 2 == 0))
    _run(bound, findings, "rows that teach nothing", lambda row, seed: Visit(seed, 0.0, signal=False))
    for rows, count, taken in ((3, 4, ()), (3, 1, (0, 1, 2)), (1, 1, ()), (5, 2, (1, 3))):
        _chosen(bound, findings, "few rows", RowsSeen(rows, count, 1, "0", {}, frozenset(taken)))
    return findings.report(title_of(bound))


def _run(bound: BoundSampler, findings: Findings, relation: str, visit: Callable[[int, int], Visit]) -> None:
    visits: Learned = {}
    last = dict.fromkeys(range(ROWS), 0)
    for step in range(1, STEPS + 1):
        rows = _chosen(bound, findings, relation, RowsSeen(ROWS, COUNT, step, "0", visits))
        if rows is None:
            return
        for row in rows:
            visits.setdefault(row, []).append(visit(row, step))
            last[row] = step
    findings.tried("every row again")
    left = [row for row, step in last.items() if step <= STEPS // 2]
    if left:
        findings.add(
            "warning",
            "every row again",
            f"{len(left)} of {ROWS} rows were not asked in the last {STEPS // 2} of {STEPS} steps ({relation}), so "
            "nothing shows what the policy learned or forgot of them. Keep some prompts for rows asked long ago",
        )


def _chosen(bound: BoundSampler, findings: Findings, relation: str, history: RowsSeen) -> list[int] | None:
    findings.tried(relation)
    findings.tried("the same from the same")
    before = random.getstate()
    try:
        rows = bound.choose(history)
        turned = dict(reversed(list(history.visits.items())))
        again = bound.choose(RowsSeen(history.rows, history.count, history.step, history.seed, turned, history.taken))
    except PluginError as error:
        findings.add("error", relation, str(error))
        return None
    finally:
        moved = random.getstate() != before
        random.setstate(before)
    if again != rows or moved:
        findings.add(
            "error",
            "the same from the same",
            "asked twice with the same rows seen, it chose others, or drew from Python's own random numbers; a run "
            "that resumes would ask other prompts. Draw from seen.random(), and keep nothing between calls",
        )
        return None
    return rows


def _visit(step: int, chance: float) -> Visit:
    draws = random.Random(f"{step} {chance}")
    right = sum(draws.random() < chance for _ in range(SIZE))
    return Visit(step, right / SIZE, signal=0 < right < SIZE)
