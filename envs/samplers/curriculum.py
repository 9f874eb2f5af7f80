"""Implements `curriculum`, which prefers rows that the policy solves some of the time."""

from __future__ import annotations

from collections.abc import Sequence

from grpo.plugins.sampling import RowsSeen, Visit
from grpo.plugins.training_decorators import sampler

NEWEST = 0.5  # weight of the last visit in a running rate
GOLDEN = (5**0.5 - 1) / 2  # its multiples are spread evenly between whole numbers, also those of every second step


@sampler(version=1, fewer=True)
def curriculum(
    seen: RowsSeen, *, low: float = 0.05, high: float = 0.9, floor: float = 0.1, rest: int = 4, fill: bool = True
) -> list[int]:
    """Prefers rows whose pass rate lies in a band, over new ones, and those over rows that teach nothing.

    A row is in the band when its completions had different rewards the last time, or were all wrong, and its running
    rate is from `low` to `high`: who was right once is likely to be again, and who is right throughout has learned it.
    Such rows come first, no sooner than after `rest` steps; new ones beside them, the more of them the more
    new ones turned out to be in the band. Of all prompts the share `floor` is kept for rows outside, that asked longest
    ago first, and of the others as much at least for new ones: every row is seen again, whatever its rate was. Where
    all of these are fewer than wanted, rows outside fill the step up; without `fill` it asks fewer.
    """
    free = [row for row in range(seen.rows) if row not in seen.taken]
    new = [row for row in free if row not in seen.visits]
    pools: dict[str, list[int]] = {"outside": [], "rested": [], "tired": []}
    for row in free:
        if visits := seen.visits.get(row):
            pool = "rested" if seen.step - visits[-1].step >= rest else "tired"
            pools[pool if _in_band(visits, low, high) else "outside"].append(row)
    outside, inside, tired = (seen.longest_ago(rows) for rows in pools.values())
    count = min(seen.count, len(free))

    kept = int(floor * seen.count + seen.step * GOLDEN % 1)  # as often rounded up, whichever steps ask for prompts
    again = outside[: 0 if seen.taken else min(kept, count)]
    firsts = [visits[0].signal for visits in seen.visits.values()]
    promising = (1 + sum(firsts)) / (1 + len(firsts))  # how likely a new row is in the band
    share = max(floor, promising / (1 + promising))
    most = count - len(again) - int(share * (count - len(again)) + seen.random().random())  # rounded up now and then
    order = [*again, *inside[:most], *seen.longest_ago(new), *inside[most:], *tired]
    if fill or not order:
        order += outside[len(again) :][: count if fill else 1]
    return order[:count]


def _in_band(visits: Sequence[Visit], low: float, high: float) -> bool:
    rates = [visit.rate for visit in visits if visit.rate is not None]
    running = rates[0] if rates else None
    for rate in rates[1:]:
        running = NEWEST * rate + (1 - NEWEST) * running  # type: ignore[operator]
    last = visits[-1]
    failed = last.rate is not None and last.rate < 0.5  # the running rate says for how long that is forgiven
    return (last.signal or failed) and (running is None or low <= running <= high)
